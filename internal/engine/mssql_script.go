package engine

import (
	"fmt"
	"slices"
	"strings"
)

type mssqlScript struct{}

// bracketed quotes a name.
func bracketed(name string) string {
	if name == "PUBLIC" {
		return "public"
	}
	return "[" + strings.ReplaceAll(name, "]", "]]") + "]"
}

func unicode(text string) string { return "N'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Runner stops at the first error, and turns QUOTED_IDENTIFIER on, which sqlcmd alone leaves off.
func (mssqlScript) Runner() string { return "sqlcmd -b -I -d database -i this-file" }

func (mssqlScript) Prologue(database string, version int64) string {
	return mssqlSettings + fmt.Sprintf(`SET LOCK_TIMEOUT 60000;
GO

-- Nobody else migrates this database meanwhile.
`+applicationLock+`DECLARE @code int;
EXEC @code = sys.sp_getapplock @Resource = @lock, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000;
IF @code < 0
    THROW 50000, N'another session holds the migration lock', 1;
GO

-- This script continues where the database stood when it was written.
IF DB_NAME() <> %s
    THROW 50000, N'this script was written for another database', 1;
DECLARE @version bigint = 0;
IF OBJECT_ID(N'fence.goose_db_version') IS NOT NULL
    EXEC sp_executesql N'SELECT @version = COALESCE(MAX(version_id), 0) FROM fence.goose_db_version WHERE is_applied = 1',
        N'@version bigint OUTPUT', @version = @version OUTPUT;
IF @version <> %d
    THROW 50000, N'this script continues at migration %d, and the database is at another one', 1;
GO`, unicode(database), version, version)
}

func (mssqlScript) Epilogue() string {
	return applicationLock + "EXEC sys.sp_releaseapplock @Resource = @lock, @LockOwner = N'Session';\nGO"
}

func (mssqlScript) Begin() string           { return "BEGIN TRANSACTION;\nGO" }
func (mssqlScript) Commit() string          { return "COMMIT;\nGO" }
func (mssqlScript) Batch(sql string) string { return sql + "\nGO" }

// Statements are those that goose sends one by one: each ends with a semicolon at the end of a line. CREATE VIEW
// has to be the first of its batch.
func (mssqlScript) Statements(up string) []string {
	var all []string
	var text strings.Builder
	for line := range strings.Lines(up) {
		text.WriteString(line)
		if strings.HasSuffix(strings.TrimRight(line, " \t\r\n"), ";") && !strings.HasPrefix(strings.TrimSpace(line), "--") {
			all = append(all, strings.TrimSpace(text.String()))
			text.Reset()
		}
	}
	if rest := strings.TrimSpace(text.String()); rest != "" {
		all = append(all, rest)
	}
	return all
}

// CreateRole tolerates that the role exists.
func (mssqlScript) CreateRole(name string) string {
	return fmt.Sprintf("IF DATABASE_PRINCIPAL_ID(%s) IS NULL\n    CREATE ROLE %s;", unicode(name), bracketed(name))
}

// CreateSchema runs in a batch of its own, as a statement of its own: CREATE SCHEMA must be the first of a batch.
func (mssqlScript) CreateSchema() string {
	return "EXEC sp_executesql N'CREATE SCHEMA fence';\n" + mssqlScript{}.MarkSchema()
}

func (mssqlScript) MarkSchema() string {
	return "EXEC sys.sp_addextendedproperty @name = N'" + schemaMark + "', " +
		"@value = N'leases and fencing tokens; migrate, verify and uninstall know it by this property', " +
		"@level0type = N'SCHEMA', @level0name = N'fence';"
}

// ActAs has nothing to do: what is created in a schema belongs to the schema's owner.
func (mssqlScript) ActAs(string) string { return "" }

func (mssqlScript) RecordMigration(version int64) string {
	return fmt.Sprintf("INSERT INTO fence.goose_db_version (version_id, is_applied) VALUES (%d, 1);", version)
}

// RaiseFloor locks as the routine raise_floor does: when it commits, no acquisition that is still to commit
// gives out a lower number.
func (mssqlScript) RaiseFloor(atLeast int64) string {
	return fmt.Sprintf("UPDATE fence.floor WITH (TABLOCKX, HOLDLOCK) SET at_least = %d WHERE at_least < %d;", atLeast, atLeast)
}

// RecordHistory keeps the fork of the database's recovery, which a restore changes. Whoever may not see it, and
// Babelfish, which has none, leaves it NULL: doctor calls that unknown.
func (mssqlScript) RecordHistory(anew bool) string {
	which := " WHERE recovery_fork_guid IS NULL"
	if anew {
		which = ""
	}
	return `UPDATE fence.epoch
   SET recovery_fork_guid = (SELECT MAX(r.recovery_fork_guid) FROM sys.database_recovery_status r WHERE r.database_id = DB_ID())` + which + ";"
}

// ApplyRoutine turns CREATE into ALTER where the procedure exists, which keeps its grants. Functions have none,
// and Babelfish cannot alter them.
func (mssqlScript) ApplyRoutine(file File, found *Routine) string {
	source := file.Source()
	if found == nil || found.Kind != "PROCEDURE" {
		return source
	}
	at := createRoutine.FindStringIndex(source)
	return source[:at[0]] + "ALTER" + source[at[0]+len("CREATE"):]
}

// CanReplace: functions are dropped and created. ALTER takes the session's settings, as CREATE does.
func (mssqlScript) CanReplace(file File, found Routine) bool {
	return file.Kind == "PROCEDURE" && found.Kind == "PROCEDURE"
}

func (mssqlScript) DropRoutine(routine Routine) string {
	return fmt.Sprintf("DROP %s fence.%s;", routine.Kind, bracketed(routine.Name))
}

func (mssqlScript) RecordRoutine(file File) string {
	return fmt.Sprintf(`DELETE FROM fence.ledger WHERE routine = %s;
INSERT INTO fence.ledger (routine, [file], file_hash, definition_hash, applied_at, applied_by)
SELECT %s, %s, %s,
       %s,
       SYSUTCDATETIME(), SUSER_SNAME()
  FROM sys.sql_modules m
 WHERE m.object_id = OBJECT_ID(%s);`,
		unicode(file.Name), unicode(file.Name), unicode(file.File), unicode(file.Hash), mssqlDefinitionHash, unicode(file.Identity))
}

func (mssqlScript) ForgetRoutine(name string) string {
	return fmt.Sprintf("DELETE FROM fence.ledger WHERE routine = %s;", unicode(name))
}

// SchemaGrant: a right on an object is enough here.
func (mssqlScript) SchemaGrant(string) (Grant, bool) { return Grant{}, false }

// SetGrants takes away what should not be there, and grants the rest, which does no harm where it is granted.
func (mssqlScript) SetGrants(change GrantChange) []string {
	var statements []string
	for _, g := range change.Unexpected {
		privilege, _ := strings.CutSuffix(g.Privilege, " (DENY)")
		statements = append(statements, fmt.Sprintf("REVOKE %s ON %s FROM %s%s;", privilege, securable(g), bracketed(g.Grantee), cascade(g)))
	}
	for _, g := range change.Expected {
		option := ""
		if g.Grantable {
			option = " WITH GRANT OPTION"
		}
		verb := "GRANT"
		privilege, denied := strings.CutSuffix(g.Privilege, " (DENY)")
		if denied {
			verb = "DENY"
		}
		statements = append(statements, fmt.Sprintf("%s %s ON %s TO %s%s;", verb, privilege, securable(g), bracketed(g.Grantee), option))
	}
	return statements
}

// cascade: a right that was given with the option to grant it on goes with what was granted on.
func cascade(g Grant) string {
	if g.Grantable {
		return " CASCADE"
	}
	return ""
}

func securable(g Grant) string {
	if g.Kind == "SCHEMA" {
		return "SCHEMA::fence"
	}
	name := "fence." + bracketed(strings.TrimPrefix(g.Object, "fence."))
	if g.Column != "" {
		name += " (" + bracketed(g.Column) + ")"
	}
	return name
}

// LockTables reads each table under an exclusive lock of the whole. Babelfish ignores the hints.
func (mssqlScript) LockTables(names []string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "SELECT COUNT_BIG(*) FROM fence.%s WITH (TABLOCKX, HOLDLOCK);\n", bracketed(name))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func (mssqlScript) HighestGeneration(tables []string) string {
	numbers := []string{"SELECT CAST(0 AS bigint) AS number"}
	if slices.Contains(tables, "lease") {
		numbers = append(numbers, "SELECT l.generation FROM fence.lease l", "SELECT l.floor FROM fence.lease l")
	}
	if slices.Contains(tables, "floor") {
		numbers = append(numbers, "SELECT f.at_least FROM fence.floor f")
	}
	return "SELECT MAX(n.number) FROM (" + strings.Join(numbers, " UNION ALL ") + ") n"
}

// DropAll names every object: nothing here would drop what others built on ours.
func (mssqlScript) DropAll(c *Catalogue) []string {
	var statements []string
	for _, kind := range []string{"view", "table"} {
		for _, r := range c.Relations {
			if r.Kind == kind {
				statements = append(statements, fmt.Sprintf("DROP %s fence.%s;", strings.ToUpper(kind), bracketed(r.Name)))
			}
		}
	}
	for _, r := range c.Routines {
		statements = append(statements, mssqlScript{}.DropRoutine(r))
	}
	return append(statements,
		"EXEC sys.sp_dropextendedproperty @name = N'"+schemaMark+"', @level0type = N'SCHEMA', @level0name = N'fence';", "DROP SCHEMA fence;")
}

func (mssqlScript) CreateRolesByHand(names []string) string {
	var lines []string
	for _, name := range names {
		lines = append(lines, "CREATE ROLE "+bracketed(name)+";")
	}
	return strings.Join(lines, "\n")
}

func (mssqlScript) DropRolesByHand(names []string) string {
	var lines []string
	for _, name := range names {
		lines = append(lines, "DROP ROLE "+bracketed(name)+";")
	}
	return strings.Join(lines, "\n")
}

func (mssqlScript) MarkByHand() string { return mssqlScript{}.MarkSchema() }

func (mssqlScript) Join(role, user string) string {
	return fmt.Sprintf("ALTER ROLE %s ADD MEMBER %s", bracketed(role), bracketed(user))
}

func (mssqlScript) ActFor(_, user string) string {
	return fmt.Sprintf("GRANT CONTROL ON SCHEMA::fence TO %s, or ALTER ROLE db_owner ADD MEMBER %s", bracketed(user), bracketed(user))
}

func (mssqlScript) AllowSchema(_, user string) string {
	return fmt.Sprintf("ALTER ROLE db_owner ADD MEMBER %s", bracketed(user))
}

func (mssqlScript) SetOwner(_, object, _ string) string {
	return fmt.Sprintf("ALTER AUTHORIZATION ON %s TO SCHEMA OWNER;", object)
}

func (mssqlScript) CreateIndex(relation, index string) string {
	kind, columns, _ := strings.Cut(index, " (")
	switch kind {
	case "PRIMARY KEY":
		return fmt.Sprintf("ALTER TABLE fence.%s ADD %s (%s;", bracketed(relation), kind, columns)
	case "UNIQUE":
		kind = "UNIQUE INDEX"
	}
	name := relation + "_" + strings.NewReplacer(", ", "_", ")", "").Replace(columns)
	return fmt.Sprintf("CREATE %s %s ON fence.%s (%s;", kind, bracketed(name), bracketed(relation), columns)
}

// DropIndex leaves the name to be looked up: a description has none.
func (mssqlScript) DropIndex(relation, index string) string {
	return fmt.Sprintf("DROP INDEX name ON fence.%s; -- the one on %s: sys.indexes has its name", bracketed(relation), strings.TrimPrefix(index, "INDEX "))
}
