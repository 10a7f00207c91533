package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// objects are the names in the differences.
func objects(result deploy.VerifyResult) []string {
	var names []string
	for _, d := range result.Differences {
		names = append(names, string(d.Kind)+" "+d.Object)
	}
	return names
}

// source returns a routine's file.
func source(name string) string {
	for _, r := range procs.Postgres(true) {
		if r.Name == name {
			return r.Source()
		}
	}
	return ""
}

// Each of these is found by verify, and mended by migrate or by the statement that verify tells.
func TestDriftIsFoundAndMended(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, change string
		found        []string
		mendByHand   bool
	}{
		{"a routine's body", strings.Replace(source("release"), "\nBEGIN\n", "\nBEGIN\n    NULL;\n", 1),
			[]string{"changed function fence.release(text,text,bigint)"}, false},
		{"a dropped routine", "DROP FUNCTION fence.seize",
			[]string{"missing function fence.seize(text,bigint,text,text)"}, false},
		{"SECURITY INVOKER", "ALTER FUNCTION fence.about() SECURITY INVOKER",
			[]string{"changed function fence.about()", "changed function fence.about(), security"}, false},
		{"search_path", "ALTER FUNCTION fence.about() SET search_path = public",
			[]string{"changed function fence.about()", "changed function fence.about(), settings"}, false},
		{"a setting", "ALTER FUNCTION fence.about() SET synchronous_commit = off",
			[]string{"changed function fence.about()", "changed function fence.about(), settings"}, false},
		{"volatility", "ALTER FUNCTION fence.about() STABLE",
			[]string{"changed function fence.about()", "changed function fence.about(), volatility"}, false},
		{"a stale overload", "CREATE FUNCTION fence.release(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'; REVOKE ALL ON FUNCTION fence.release(text, text) FROM PUBLIC",
			[]string{"unexpected function fence.release(text,text)"}, false},
		{"a routine of an older version", "INSERT INTO fence.ledger VALUES ('old', 'postgres/old.sql', 'x', 'x', now(), 'x'); CREATE FUNCTION fence.old() RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
			[]string{"unexpected function fence.old()"}, false},
		{"another result", "DROP FUNCTION fence.about(); CREATE FUNCTION fence.about() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION fence.about() FROM PUBLIC; GRANT EXECUTE ON FUNCTION fence.about() TO fence_worker, fence_dispatcher, fence_receiver, fence_reader, fence_operator",
			[]string{"changed function fence.about()", "changed function fence.about(), security", "changed function fence.about(), settings", "changed function fence.about(), language"}, false},
		{"other names of arguments", "DROP FUNCTION fence.raise_floor; " + strings.NewReplacer("p_resource", "p_name").Replace(source("raise_floor")) + "; REVOKE ALL ON FUNCTION fence.raise_floor FROM PUBLIC; GRANT EXECUTE ON FUNCTION fence.raise_floor TO fence_operator",
			[]string{"changed function fence.raise_floor(text,bigint)"}, false},
		{"a default that is no longer there", "DROP FUNCTION fence.raise_floor; " + strings.Replace(source("raise_floor"), "p_at_least bigint)", "p_at_least bigint DEFAULT 0)", 1) + "; REVOKE ALL ON FUNCTION fence.raise_floor FROM PUBLIC; GRANT EXECUTE ON FUNCTION fence.raise_floor TO fence_operator",
			[]string{"changed function fence.raise_floor(text,bigint)"}, false},
		{"a file of another version", "UPDATE fence.ledger SET file_hash = 'other' WHERE routine = 'renew'",
			[]string{"pending function fence.renew(text,text,bigint,bigint)"}, false},
		{"a lost ledger row", "DELETE FROM fence.ledger WHERE routine = 'renew'",
			[]string{"changed function fence.renew(text,text,bigint,bigint)"}, false},
		{"EXECUTE for PUBLIC", "GRANT EXECUTE ON FUNCTION fence.release TO PUBLIC",
			[]string{"unexpected function fence.release(text,text,bigint)"}, false},
		{"USAGE for PUBLIC", "GRANT USAGE ON SCHEMA fence TO PUBLIC",
			[]string{"unexpected schema fence"}, false},
		{"a table for a role", "GRANT SELECT ON fence.lease TO fence_worker",
			[]string{"unexpected table fence.lease"}, false},
		{"a column for a role", "GRANT UPDATE (generation) ON fence.lease TO fence_worker",
			[]string{"unexpected table fence.lease, column generation"}, false},
		{"a sequence for a role", "GRANT USAGE ON SEQUENCE fence.goose_db_version_id_seq TO fence_worker",
			[]string{"unexpected sequence fence.goose_db_version_id_seq"}, false},
		{"too many routines for a role", "GRANT EXECUTE ON FUNCTION fence.seize TO fence_worker",
			[]string{"unexpected function fence.seize(text,bigint,text,text)"}, false},
		{"a missing grant", "REVOKE EXECUTE ON FUNCTION fence.seize FROM fence_operator; REVOKE SELECT ON fence.deployment FROM fence_reader",
			[]string{"missing table fence.deployment", "missing function fence.seize(text,bigint,text,text)"}, false},
		{"a grant option", "GRANT EXECUTE ON FUNCTION fence.seize TO fence_operator WITH GRANT OPTION",
			[]string{"missing function fence.seize(text,bigint,text,text)", "unexpected function fence.seize(text,bigint,text,text)"}, false},
		{"fillfactor", "ALTER TABLE fence.lease_term SET (fillfactor = 100)",
			[]string{"changed table fence.lease_term, settings"}, true},
		{"autovacuum", "ALTER TABLE fence.lease RESET (autovacuum_vacuum_threshold)",
			[]string{"changed table fence.lease, settings"}, true},
		{"one setting more", "ALTER TABLE fence.lease SET (autovacuum_enabled = off)",
			[]string{"changed table fence.lease, settings"}, true},
		{"an index on a hot column", "CREATE INDEX slow ON fence.lease_term (lease_until)",
			[]string{"changed table fence.lease_term, indexes"}, true},
		{"a lost index", "DROP INDEX fence.rejection_age",
			[]string{"changed table fence.rejection, indexes"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newInstalled(t)
			db.exec(c.change)
			result := db.verify()
			require.ElementsMatch(t, c.found, objects(result))
			require.False(t, result.Clean)
			for _, d := range result.Differences {
				require.NotEmpty(t, d.Expected)
				require.NotEmpty(t, d.Found)
				require.NotEmpty(t, d.Mend)
			}
			if c.mendByHand {
				for _, d := range result.Differences {
					db.exec(d.Mend)
				}
			} else {
				require.True(t, db.migrate().Changed)
			}
			db.clean()
			require.False(t, db.migrate().Changed)
		})
	}
}

func TestMissingAndChangedRelationsAreFound(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("DROP VIEW fence.rejections; ALTER TABLE fence.lease ADD COLUMN mine int")
	require.ElementsMatch(t, []string{"missing view fence.rejections", "changed table fence.lease, columns"}, objects(db.verify()))
	// Migrate cannot mend either, and says so before it touches anything.
	db.exec("DROP FUNCTION fence.seize")
	known := kind(t, engine.KindUnfit, second(db.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "view fence.rejections")
	require.Empty(t, db.text("SELECT to_regprocedure('fence.seize(text,bigint,text,text)')::text"))
}

func TestAMigrateThatLeavesADifferenceFails(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("ALTER TABLE fence.lease ADD COLUMN mine int")
	known := kind(t, engine.KindDifference, second(db.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "mine integer")
}

func TestAStaleOverloadIsNeverDroppedWithWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec(`CREATE FUNCTION fence.release(text, text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
		CREATE VIEW public.theirs AS SELECT fence.release('a', 'b');
		DROP FUNCTION fence.seize`)
	_, err := db.deployer().Migrate(ctx, migrateOptions())
	known := kind(t, engine.KindOther, err)
	require.Contains(t, known.Hint, "view public.theirs")
	// All of it is one transaction.
	require.Empty(t, db.text("SELECT to_regprocedure('fence.seize(text,bigint,text,text)')::text"))
	require.NotEmpty(t, db.text("SELECT to_regclass('public.theirs')::text"))
	db.exec("DROP VIEW public.theirs")
	db.migrate()
	db.clean()
}

func TestGrantsToOtherRolesAreNotedAndKept(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	other := db.as("", "GRANT USAGE ON SCHEMA fence TO $user", "GRANT EXECUTE ON FUNCTION fence.about() TO $user", "GRANT SELECT ON fence.lease TO $user")
	result := db.verify()
	require.True(t, result.Clean)
	require.Len(t, result.Notes, 3)
	// Also when the routine has to be dropped and created.
	db.exec("DROP FUNCTION fence.about(); CREATE FUNCTION fence.about() RETURNS int LANGUAGE sql AS 'SELECT 1'; GRANT EXECUTE ON FUNCTION fence.about() TO " + other.user())
	db.migrate()
	db.clean()
	require.Equal(t, "1", other.text("SELECT contract_version::text FROM fence.about()"))
}

func TestDefaultPrivilegesDoNotWidenTheGrants(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	db.exec("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO fence_reader, fence_worker; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO fence_worker")
	db.migrate()
	db.clean()
}

func TestObjectsThatAreNotOursAreFoundAndStay(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("CREATE TABLE fence.theirs (id int); CREATE FUNCTION fence.their_own() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TYPE fence.colour AS ENUM ('red'); CREATE SEQUENCE fence.numbers")
	require.ElementsMatch(t, []string{"unexpected table fence.theirs", "unexpected function fence.their_own()", "unexpected type fence.colour", "unexpected sequence fence.numbers"}, objects(db.verify()))
	result := db.migrate()
	require.False(t, result.Changed)
	require.NotEmpty(t, result.Notes)
	known := kind(t, engine.KindUnfit, second(db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
	for _, name := range []string{"fence.theirs", "fence.their_own", "fence.colour", "fence.numbers"} {
		require.Contains(t, known.Message, name)
	}
	require.NotEmpty(t, db.text("SELECT to_regclass('fence.lease')::text"))
}
