package engine

import (
	"slices"
	"time"

	"github.com/fencectl/fencectl/procs"
)

// Catalogue is what one look at a database showed, and the files of this program in that database's terms.
type Catalogue struct {
	Version       string // of the server, for instance "15.18"
	VersionNumber int    // for instance 150018
	Encoding      string
	Database      string
	Standby       bool // takes no writes

	// Of T-SQL servers: Babelfish is PostgreSQL underneath, an evergreen one is always the newest version.
	Babelfish, Evergreen bool
	DelayedDurability    DelayedDurability

	User            string // whom the session acts as
	CanCreateSchema bool
	CanCreateRole   bool
	Roles           map[string]Role // those of procs.Roles that exist

	Schema   *Schema // nil: there is none
	Readable bool    // the versions and the ledger could be read, where they exist

	VersionTable bool // goose's table exists
	Applied      []AppliedMigration
	LedgerTable  bool
	Ledger       map[string]LedgerRow // by routine
	Floor        *int64               // the global floor; nil where there is none, or it may not be read

	Routines  []Routine
	Relations []Relation
	Foreign   []string // other objects in the schema, as messages show them
	Grants    []Grant

	Files []File // what should be there, in the order in which it is applied
}

// DelayedDurability is SQL Server's database option of that name.
type DelayedDurability int

// Its values, as sys.databases numbers them.
const (
	DurabilityFull    DelayedDurability = 0
	DurabilityAllowed DelayedDurability = 1
	DurabilityForced  DelayedDurability = 2
)

// Role is a role that exists.
type Role struct {
	Login, Superuser bool
}

// Schema is the schema named fence.
type Schema struct {
	Owner   string
	Comment string
	Ours    bool // its comment says so
	Empty   bool
	// MayAct tells that the session's user is the owner, or may become it.
	MayAct bool
}

// AppliedMigration is a row of goose's table.
type AppliedMigration struct {
	Version int64
	At      time.Time
}

// LedgerRow tells which file a routine was made from, and what the server stored for it.
type LedgerRow struct {
	File, FileHash, DefinitionHash string
	AppliedAt                      time.Time
	AppliedBy                      string
}

// Routine is a routine of the schema.
type Routine struct {
	Name string
	// Identity is the name with schema and argument types, as statements take it.
	Identity string
	// Kind is the word that DROP and GRANT take: FUNCTION, PROCEDURE, or ROUTINE for anything else.
	Kind           string
	ArgumentNames  []string
	Defaults       int
	Result         string
	DefinitionHash string
	Owner          string

	Language        string
	Volatile        bool
	SecurityDefiner bool
	Settings        []string
}

// File is the source of a routine, and the signature that it declares in the server's terms.
type File struct {
	procs.Routine
	// Kind as in Routine.
	Kind          string
	Hash          string
	Identity      string
	ArgumentNames []string
	Defaults      int
	Result        string

	Language        string
	Volatile        bool
	SecurityDefiner bool
	Settings        []string
}

// Relation is a table, view or sequence of the schema.
type Relation struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"` // table, view, sequence
	Owner   string   `json:"-"`
	Options []string `json:"options,omitempty"` // reloptions, sorted
	Columns []string `json:"columns,omitempty"` // name type [NOT NULL]
	Indexes []string `json:"indexes,omitempty"` // definitions, sorted
}

// Grant is one privilege that somebody other than the owner has.
type Grant struct {
	// Kind and Object: "SCHEMA fence", "FUNCTION fence.about()", "PROCEDURE fence.about", "TABLE fence.lease",
	// "SEQUENCE …".
	Kind, Object string
	Column       string // for a privilege on one column
	Grantee      string // "PUBLIC" for everybody
	Privilege    string
	Grantable    bool
}

// Installed tells whether there is a fence: ours, with at least one migration applied.
func (c *Catalogue) Installed() bool {
	return c.Schema != nil && c.Schema.Ours && (len(c.Applied) > 0 || !c.Readable)
}

// SchemaVersion is the newest migration that is applied; 0 is none.
func (c *Catalogue) SchemaVersion() int64 {
	newest := int64(0)
	for _, m := range c.Applied {
		newest = max(newest, m.Version)
	}
	return newest
}

// AppliedVersion returns the row of a migration.
func (c *Catalogue) AppliedVersion(version int64) (AppliedMigration, bool) {
	i := slices.IndexFunc(c.Applied, func(m AppliedMigration) bool { return m.Version == version })
	if i < 0 {
		return AppliedMigration{}, false
	}
	return c.Applied[i], true
}

// Relation returns the relation of that name, or nil.
func (c *Catalogue) Relation(name string) *Relation {
	i := slices.IndexFunc(c.Relations, func(r Relation) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Relations[i]
}

// Routine returns the routine of that identity, or nil.
func (c *Catalogue) Routine(identity string) *Routine {
	i := slices.IndexFunc(c.Routines, func(r Routine) bool { return r.Identity == identity })
	if i < 0 {
		return nil
	}
	return &c.Routines[i]
}

// Managed tells whether a routine of that name is ours: it is in the files, or the ledger knows it.
func (c *Catalogue) Managed(name string) bool {
	if _, known := c.Ledger[name]; known {
		return true
	}
	return slices.ContainsFunc(c.Files, func(f File) bool { return f.Name == name })
}

// FindingStatus is the verdict of one check.
type FindingStatus string

// Verdicts. Unknown means that this user may not see it, or that it cannot be seen from here: never "fine".
const (
	FindingOK      FindingStatus = "ok"
	FindingWarning FindingStatus = "warning"
	FindingUnfit   FindingStatus = "unfit"
	FindingUnknown FindingStatus = "unknown"
)

// Finding is what one check of a database's health found.
type Finding struct {
	// Check names it; names are stable.
	Check  string        `json:"check"`
	Status FindingStatus `json:"status"`
	// Detail says what was seen, Hint what to do; Hint may be empty.
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}
