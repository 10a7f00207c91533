package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

type postgresScript struct{}

func quote(name string) string {
	if name == "PUBLIC" {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

func literal(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

func (postgresScript) Prologue(database string, version int64) string {
	return `\set ON_ERROR_STOP on
SET client_encoding = 'UTF8';
` + sessionSettings + fmt.Sprintf(`SET lock_timeout = '60s';
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;

-- Nobody else migrates this database meanwhile.
SELECT pg_advisory_lock(%d);

-- This script continues where the database stood when it was written.
DO $check$
DECLARE
    v_version bigint := 0;
BEGIN
    IF current_database() <> %s THEN
        RAISE EXCEPTION 'this script was written for another database than %%', current_database();
    END IF;
    IF to_regclass('fence.goose_db_version') IS NOT NULL THEN
        SELECT coalesce(max(version_id), 0) INTO v_version FROM fence.goose_db_version WHERE is_applied;
    END IF;
    IF v_version <> %d THEN
        RAISE EXCEPTION 'this script continues at migration %d, and the database is at migration %%', v_version;
    END IF;
END;
$check$;`, migrationLock, literal(database), version, version)
}

func (postgresScript) Epilogue() string {
	return fmt.Sprintf("SELECT pg_advisory_unlock(%d);\nRESET ALL;", migrationLock)
}

// CreateRole tolerates that the role exists: roles belong to the whole server, and another database may be
// creating the same one at this moment. The block's handler makes it a savepoint.
func (postgresScript) CreateRole(name string) string {
	return fmt.Sprintf(`DO $role$
BEGIN
    CREATE ROLE %s NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END;
$role$;`, quote(name))
}

func (postgresScript) CreateSchema() string {
	return "CREATE SCHEMA fence;\n" + postgresScript{}.MarkSchema()
}

func (postgresScript) MarkSchema() string {
	return "COMMENT ON SCHEMA fence IS '" + schemaMark + ": leases and fencing tokens; migrate, verify and uninstall know it by this comment';"
}

func (postgresScript) ActAs(role string) string { return "SET ROLE " + quote(role) + ";" }

func (postgresScript) RecordMigration(version int64) string {
	return fmt.Sprintf("INSERT INTO fence.goose_db_version (version_id, is_applied) VALUES (%d, true);", version)
}

// RaiseFloor locks as the routine raise_floor does: when it commits, no acquisition that is still to commit
// gives out a lower number.
func (postgresScript) RaiseFloor(atLeast int64) string {
	return fmt.Sprintf(`LOCK TABLE fence.floor IN ACCESS EXCLUSIVE MODE;
UPDATE fence.floor SET at_least = %d WHERE at_least < %d;`, atLeast, atLeast)
}

// RecordHistory has nothing to do: each grant compares the history itself.
func (postgresScript) RecordHistory(bool) string { return "" }

func (postgresScript) Runner() string          { return "psql -v ON_ERROR_STOP=1 -f this-file" }
func (postgresScript) Begin() string           { return "BEGIN;" }
func (postgresScript) Commit() string          { return "COMMIT;" }
func (postgresScript) Batch(sql string) string { return sql }

func (postgresScript) Statements(up string) []string { return []string{up} }

// ApplyRoutine is the file as it stands: it says CREATE OR REPLACE.
func (postgresScript) ApplyRoutine(file File, _ *Routine) string { return file.Source() }

// CanReplace knows what CREATE OR REPLACE refuses: it changes neither the result's shape nor the names of
// arguments, and takes no default away.
func (postgresScript) CanReplace(file File, found Routine) bool {
	return found.Kind == "FUNCTION" && found.Result == file.Result && found.Defaults <= file.Defaults &&
		slices.Equal(found.ArgumentNames, file.ArgumentNames)
}

func (postgresScript) DropRoutine(routine Routine) string {
	return fmt.Sprintf("DROP %s %s;", routine.Kind, routine.Identity)
}

func (postgresScript) RecordRoutine(file File) string {
	return fmt.Sprintf(`INSERT INTO fence.ledger (routine, file, file_hash, definition_hash, applied_at, applied_by)
SELECT '%s', '%s', '%s',
       %s,
       clock_timestamp(), session_user
  FROM pg_proc p
  JOIN pg_language l ON l.oid = p.prolang
 WHERE p.oid = '%s'::regprocedure
ON CONFLICT (routine) DO UPDATE
   SET file = EXCLUDED.file, file_hash = EXCLUDED.file_hash, definition_hash = EXCLUDED.definition_hash,
       applied_at = EXCLUDED.applied_at, applied_by = EXCLUDED.applied_by;`,
		file.Name, file.File, file.Hash, definitionHash, file.Identity)
}

func (postgresScript) ForgetRoutine(name string) string {
	return fmt.Sprintf("DELETE FROM fence.ledger WHERE routine = %s;", literal(name))
}

func (postgresScript) SchemaGrant(role string) (Grant, bool) {
	return Grant{Kind: "SCHEMA", Object: "fence", Grantee: role, Privilege: "USAGE"}, true
}

// SetGrants takes everything away and grants it again, in the same transaction.
func (postgresScript) SetGrants(change GrantChange) []string {
	statements := revokeAll(change.Objects, change.Grantees)
	for _, g := range change.Expected {
		statements = append(statements, grant(g))
	}
	return statements
}

func revokeAll(objects []string, grantees []string) []string {
	names := make([]string, len(grantees))
	for i, g := range grantees {
		names[i] = quote(g)
	}
	byKind := map[string][]string{}
	var kinds []string
	for _, object := range objects {
		kind, name, _ := strings.Cut(object, " ")
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		byKind[kind] = append(byKind[kind], name)
	}
	var statements []string
	for _, kind := range kinds {
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON %s\n    %s\n    FROM %s;",
			kind, strings.Join(byKind[kind], ",\n    "), strings.Join(names, ", ")))
	}
	return statements
}

func grant(g Grant) string {
	column := ""
	if g.Column != "" {
		column = " (" + quote(g.Column) + ")"
	}
	option := ""
	if g.Grantable {
		option = " WITH GRANT OPTION"
	}
	return fmt.Sprintf("GRANT %s%s ON %s %s TO %s%s;", g.Privilege, column, g.Kind, g.Object, quote(g.Grantee), option)
}

func (postgresScript) LockTables(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "LOCK TABLE fence." + strings.Join(names, ", fence.") + " IN ACCESS EXCLUSIVE MODE;"
}

func (postgresScript) HighestGeneration(tables []string) string {
	numbers := []string{"0"}
	if slices.Contains(tables, "lease") {
		numbers = append(numbers, "(SELECT max(greatest(l.generation, l.floor)) FROM fence.lease l)")
	}
	if slices.Contains(tables, "floor") {
		numbers = append(numbers, "(SELECT max(f.at_least) FROM fence.floor f)")
	}
	return "SELECT greatest(" + strings.Join(numbers, ", ") + ")"
}

// DropAll names every object: DROP SCHEMA … CASCADE would also take what others built on ours.
func (postgresScript) DropAll(c *Catalogue) []string {
	var statements []string
	for _, kind := range []string{"view", "table"} {
		var names []string
		for _, r := range c.Relations {
			if r.Kind == kind {
				names = append(names, "fence."+r.Name)
			}
		}
		if len(names) > 0 {
			statements = append(statements, "DROP "+strings.ToUpper(kind)+" "+strings.Join(names, ", ")+";")
		}
	}
	for _, r := range c.Routines {
		statements = append(statements, postgresScript{}.DropRoutine(r))
	}
	return append(statements, "DROP SCHEMA fence;")
}

func (postgresScript) CreateRolesByHand(names []string) string {
	var lines []string
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("CREATE ROLE %s NOLOGIN;", name))
	}
	return strings.Join(lines, "\n")
}

func (postgresScript) DropRolesByHand(names []string) string {
	return "DROP ROLE " + strings.Join(names, ", ") + ";"
}

func (postgresScript) MarkByHand() string { return "COMMENT ON SCHEMA fence IS '" + schemaMark + "'" }

func (postgresScript) Join(role, user string) string {
	return fmt.Sprintf("GRANT %s TO %q", role, user)
}

func (postgresScript) ActFor(owner, user string) string {
	return fmt.Sprintf("GRANT %q TO %q", owner, user)
}

func (postgresScript) AllowSchema(database, user string) string {
	return fmt.Sprintf("GRANT CREATE ON DATABASE %q TO %q; or, as a user who may: CREATE SCHEMA fence AUTHORIZATION %q", database, user, user)
}

func (postgresScript) SetOwner(kind, object, owner string) string {
	return fmt.Sprintf("ALTER %s %s OWNER TO %q;", kind, object, owner)
}

func (postgresScript) CreateIndex(_, index string) string { return index + ";" }

func (postgresScript) DropIndex(_, index string) string {
	_, name, _ := strings.Cut(index, "INDEX ")
	name, _, _ = strings.Cut(name, " ON ")
	return "DROP INDEX fence." + name + ";"
}
