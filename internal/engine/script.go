package engine

// Script writes the statements that deployments consist of, and those that hints tell a person to run. A run and
// a dry run take them from here alike, so that what is printed is what is done.
type Script interface {
	// Runner is the command that runs a script by hand; the script is its last argument's file.
	Runner() string
	// Prologue prepares a session that runs a script by hand; database and newest migration must be those given.
	Prologue(database string, version int64) string
	// Epilogue ends it.
	Epilogue() string
	// Begin and Commit are a transaction in a script, and Batch is a batch of statements in it.
	Begin() string
	Commit() string
	Batch(sql string) string
	// Statements are the batches that the part of a migration which goes up consists of.
	Statements(up string) []string

	CreateRole(name string) string
	CreateSchema() string
	// MarkSchema marks an existing, empty schema as ours.
	MarkSchema() string
	// ActAs makes what follows the work of that role; empty where nothing needs to be done for it.
	ActAs(role string) string
	// RecordMigration writes the row that goose would.
	RecordMigration(version int64) string
	RaiseFloor(atLeast int64) string
	// RecordHistory keeps which history of the database the numbers belong to; empty where grants do that.
	// anew replaces what is kept.
	RecordHistory(anew bool) string
	// ApplyRoutine makes the routine as its file has it; found is the one that is there, or nil.
	ApplyRoutine(file File, found *Routine) string
	// CanReplace tells whether that keeps what stands there, with its grants.
	CanReplace(file File, found Routine) bool
	DropRoutine(routine Routine) string
	// RecordRoutine writes the ledger row of a routine that was just created.
	RecordRoutine(file File) string
	// ForgetRoutine removes it.
	ForgetRoutine(name string) string
	// SchemaGrant is the right on the schema that each role needs, or nothing.
	SchemaGrant(role string) (Grant, bool)
	// SetGrants brings grants to what they should be.
	SetGrants(change GrantChange) []string
	// LockTables keeps everybody out of tables of the schema until the transaction ends.
	LockTables(names []string) string
	// HighestGeneration asks for the highest number in those tables that was given out or reserved.
	HighestGeneration(tables []string) string
	// DropAll drops all that the schema has, and the schema, never what depends on it from outside.
	DropAll(c *Catalogue) []string

	// For a person to run.

	CreateRolesByHand(names []string) string
	DropRolesByHand(names []string) string
	MarkByHand() string
	// Join makes a user a member of a role.
	Join(role, user string) string
	// ActFor lets a user work in a schema of that owner.
	ActFor(owner, user string) string
	// AllowSchema lets a user create the schema.
	AllowSchema(database, user string) string
	// SetOwner gives an object to the schema's owner.
	SetOwner(kind, object, owner string) string
	// CreateIndex and DropIndex mend an index that is described as in Relation.Indexes.
	CreateIndex(relation, index string) string
	DropIndex(relation, index string) string
}

// GrantChange is what SetGrants is to bring about.
type GrantChange struct {
	// Objects are all that is ours, each a kind and a name as in Grant; Grantees those whose grants on them are
	// ours to decide.
	Objects, Grantees []string
	// Unexpected grants are there, and should not be.
	Unexpected []Grant
	// Expected grants are all that should be there.
	Expected []Grant
}
