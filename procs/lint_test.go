// The rules that every SQL file keeps, read from the parsed source: see the rules of the procedures in
// docs/decisions.md. Each rule has a case below that breaks it, so that the rules themselves can fail.
package procs_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/migrations"
	"github.com/fencectl/fencectl/procs"
)

// exception is a finding that stands, and why.
type exception struct {
	finding
	why string
}

func exceptions() []exception {
	except := func(file, rule, why string, subjects ...string) []exception {
		var list []exception
		for _, subject := range subjects {
			list = append(list, exception{finding{file: "postgres/" + file + ".sql", rule: rule, subject: subject}, why})
		}
		return list
	}
	return slices.Concat(
		except("remove", "FOR NO KEY UPDATE", "FOR UPDATE before DELETE", "lease", "lease_term"),
		except("prune", "resource = p_resource", "it deletes by age, over all resources",
			"lease", "publication_key", "late_publication", "rejection", "intervention"),
		except("prune", "no locking join", "FOR UPDATE OF k locks the keys alone: the lease is read for a fact that is final",
			"publication_key, lease"),
		except("prune", "FOR NO KEY UPDATE", "FOR UPDATE before DELETE", "late_publication", "rejection", "intervention"),
		except("prune", "no SKIP LOCKED or NOWAIT", "what somebody holds can be deleted next time",
			"late_publication", "rejection", "intervention"),
		except("prune", "locked by key", "a batch", "late_publication", "rejection", "intervention"),
		except("prune", "lock order", "each statement locks one kind of row, and waits for none", "intervention after rejection"),
		except("record_rejection", "no SKIP LOCKED or NOWAIT", "a new row instead of a wait", "rejection"),
		except("record_rejection", "locked by key", "any row of this token will do", "rejection"),
		except("next_generation", "FOR NO KEY UPDATE", "FOR SHARE: grants do not wait for one another", "floor"),
		except("next_generation", "locked by key", "a table of one row", "floor"),
		except("raise_floor", "statement kinds", "waits for all grants under way, which only read the floor", "LockStmt"),
		except("require", "header", "its reason stands in the error, never in the row", "Reasons"),
	)
}

// resourceKeys returns the primary key of each table that is keyed by resource.
func resourceKeys(t *testing.T) map[string][]string {
	t.Helper()
	keys := map[string][]string{}
	for file, source := range sqlFiles(t, migrations.Postgres) {
		m, err := parseMigration(file, source)
		require.NoError(t, err)
		for _, statement := range m.up {
			if create := statement.child("CreateStmt"); create != nil {
				if made := readTable(create); made.primaryKey[0] == "resource" {
					keys[made.name] = made.primaryKey
				}
			}
		}
	}
	return keys
}

func sqlFiles(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	names, err := fs.Glob(files, "postgres/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	sources := map[string]string{}
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		sources[name] = string(source)
	}
	return sources
}

func TestEveryRoutineKeepsTheRules(t *testing.T) {
	t.Parallel()
	keys := resourceKeys(t)
	require.Contains(t, keys, "lease")
	internal := internalRoutines()
	sources := sqlFiles(t, os.DirFS("."))
	assert.Len(t, sources, len(internal), "every file is a routine, or a form of one")

	excepted := map[finding]bool{}
	for _, e := range exceptions() {
		excepted[e.finding] = false
	}
	for file, source := range sources {
		found, err := lintRoutine(file, source, !internal[file], keys)
		require.NoError(t, err)
		for _, f := range found {
			if _, ok := excepted[f]; ok {
				excepted[f] = true
				continue
			}
			t.Error(f)
		}
	}
	for _, e := range exceptions() {
		assert.True(t, excepted[e.finding], "the exception is not needed: %s (%s)", e.finding, e.why)
	}
}

// internalRoutines tells of each file whether its routine is internal.
func internalRoutines() map[string]bool {
	internal := map[string]bool{}
	for _, routine := range slices.Concat(procs.Postgres(true), procs.Postgres(false)) {
		internal[routine.File] = routine.Internal
	}
	return internal
}

func TestEveryMigrationKeepsTheRules(t *testing.T) {
	t.Parallel()
	for file, source := range sqlFiles(t, migrations.Postgres) {
		found, err := lintMigration(file, source)
		require.NoError(t, err)
		for _, f := range found {
			t.Error(f)
		}
	}
}

// goodRoutine keeps every rule; each case below breaks one.
const goodRoutine = `-- Touches a lease.
--
-- Parameters  p_resource  what is worked on
--             p_owner     who asks
-- Result      one row: outcome; reason
-- Outcomes    touched · refused
-- Reasons     not_found
-- Locks       lease, lease_term
-- Errors      none
CREATE OR REPLACE FUNCTION fence.touch(
    p_resource text,
    p_owner text)
RETURNS TABLE (
    outcome text,
    reason text)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
DECLARE
    v_clock timestamptz;
    v_owner text;
BEGIN
    SELECT l.owner INTO v_owner
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;
    SELECT l.owner INTO v_owner
      FROM fence.lease l
     WHERE l.resource = p_resource
       FOR NO KEY UPDATE;
    SELECT t.owner INTO v_owner
      FROM fence.lease_term t
     WHERE t.resource = p_resource
       FOR NO KEY UPDATE;
    v_clock := clock_timestamp();
    IF v_owner = p_owner THEN
        outcome := 'touched';
        UPDATE fence.lease l SET acquired_at = v_clock WHERE l.resource = p_resource;
    ELSE
        outcome := 'refused';
        INSERT INTO fence.publication (resource, revision)
        VALUES (p_resource, 1)
        ON CONFLICT (resource) DO NOTHING;
    END IF;
    RETURN NEXT;
END;
$$;
`

// offence is a replacement in goodRoutine, and the rule that must refuse the result.
type offence struct {
	rule, subject, old, new string
}

func offences() []offence {
	const body = "    v_clock := clock_timestamp();\n    IF"
	do := func(statement string) string {
		return "    v_clock := clock_timestamp();\n    " + statement + "\n    IF"
	}
	const firstSelect = "SELECT l.owner INTO v_owner\n      FROM fence.lease l\n     WHERE l.resource = p_resource\n       FOR NO KEY UPDATE;"
	return []offence{
		{"one function a file", "2 statements", "END;\n$$;\n", "END;\n$$;\nSELECT 1;"},
		{"file name = routine name", "fence.touched", "FUNCTION fence.touch(", "FUNCTION fence.touched("},
		{"file name = routine name", "touch", "FUNCTION fence.touch(", "FUNCTION touch("},
		{"re-applied with CREATE OR REPLACE", "fence.touch", "CREATE OR REPLACE", "CREATE"},
		{"header", "first sentence", "-- Touches", "\n-- Touches"},
		{"header", "Locks", "-- Locks ", "-- Waits "},
		{"header", "Errors", "-- Errors ", "-- "},
		{"header", "Reasons", "-- Reasons ", "-- "},
		{"header", "Outcomes", "-- Outcomes ", "-- "},
		{"header", "Result", "-- Result ", "-- Answer "},
		{"header", "Parameters", "-- Parameters  p_resource", "-- p_resource"},
		{"header", "p_owner", "--             p_owner     who asks\n", ""},
		{"header", "Internal", "-- Touches a lease.\n", "-- Touches a lease.\n-- Internal: called by nobody.\n"},
		{"results are RETURNS TABLE columns", "outcome", "p_owner text)\nRETURNS TABLE (\n    outcome text,\n    reason text)", "p_owner text, OUT outcome text, OUT reason text)\nRETURNS SETOF record"},
		{"VOLATILE", "stable", "\nVOLATILE", "\nSTABLE"},
		{"VOLATILE", "", "\nVOLATILE", ""},
		{"language", "sql", goodRoutine[strings.Index(goodRoutine, "LANGUAGE"):], "LANGUAGE sql AS $$ SELECT 'a', 'b' $$;"},
		{"SECURITY DEFINER", "false", "\nSECURITY DEFINER", ""},
		{"search_path", "", "\nSET search_path = pg_catalog, fence, pg_temp", ""},
		{"search_path", "pg_temp, pg_catalog, fence", "pg_catalog, fence, pg_temp", "pg_temp, pg_catalog, fence"},
		{"search_path", "pg_catalog, fence", "pg_catalog, fence, pg_temp", "pg_catalog, fence"},
		{"function options", "parallel", "\nVOLATILE", "\nVOLATILE PARALLEL SAFE"},
		{"parameters begin with p_", "owner", "    p_owner text)", "    p_owner text, owner text)"},
		{"p_resource text is the first parameter", "text", "    p_resource text,\n    p_owner text)", "    p_owner text,\n    p_resource text)"},
		{"p_resource text is the first parameter", "pg_catalog.varchar", "    p_resource text,", "    p_resource varchar,"},
		{"flat block", "block", body, do("BEGIN v_owner := NULL; END;")},
		{"flat block", "block", body, do("BEGIN v_owner := NULL; EXCEPTION WHEN others THEN v_owner := NULL; END;")},
		{"flat block", "block", "    RETURN NEXT;\nEND;", "    RETURN NEXT;\nEXCEPTION WHEN others THEN RETURN;\nEND;"},
		{"flat block", "dynexecute", body, do("EXECUTE 'SELECT 1';")},
		{"flat block", "perform", body, do("PERFORM clock_timestamp();")},
		{"flat block", "while", body, do("WHILE v_owner IS NULL LOOP v_owner := 'a'; END LOOP;")},
		{"flat block", "getdiag", body, do("GET DIAGNOSTICS v_owner = ROW_COUNT;")},
		{"flat block", "return_query", "    RETURN NEXT;", "    RETURN QUERY SELECT 'a', 'b';"},
		{"statement kinds", "TruncateStmt", body, do("TRUNCATE fence.rejection;")},
		{"statement kinds", "LockStmt", body, do("LOCK TABLE fence.floor;")},
		{"statement kinds", "SETOP_UNION", body, do("v_owner := (SELECT 'a' UNION SELECT 'b');")},
		{"typed scalars", "v_row", "    v_owner text;\n", "    v_owner text;\n    v_row record;\n"},
		{"typed scalars", "v_owner", "    v_owner text;\n", "    v_owner fence.lease.owner%TYPE;\n"},
		{"typed scalars", "v_row", "    v_owner text;\n", "    v_owner text;\n    v_row fence.lease%ROWTYPE;\n"},
		{"variables begin with v_", "other", "    v_owner text;\n", "    v_owner text;\n    other text;\n"},
		{"FOUND", "found", "IF v_owner = p_owner THEN", "IF NOT FOUND THEN"},
		{"positional calls", "p_owner", body, do("v_owner := fence.other(p_owner => p_owner);")},
		{"advisory lock", "pg_advisory_xact_lock", body, do("v_owner := pg_advisory_xact_lock(1)::text;")},
		{"advisory lock", "pg_try_advisory_lock", body, do("v_owner := pg_catalog.pg_try_advisory_lock(1)::text;")},
		{"wall clock", "now", "    v_clock := clock_timestamp();\n", "    v_clock := clock_timestamp();\n    v_clock := now();\n"},
		{"wall clock", "now", "    v_owner text;\n", "    v_owner text := now()::text;\n"},
		{"wall clock", "now", body, do("v_clock := 'now'::timestamptz;")},
		{"wall clock", "transaction_timestamp", body, do("v_clock := transaction_timestamp();")},
		{"wall clock", "statement_timestamp", body, do("v_clock := statement_timestamp();")},
		{"wall clock", "current_timestamp", body, do("v_clock := CURRENT_TIMESTAMP;")},
		{"wall clock", "localtimestamp", body, do("v_clock := LOCALTIMESTAMP;")},
		{"wall clock", "current_date", body, do("RAISE EXCEPTION '%', current_date;")},
		{"functions", "pg_notify", body, do("v_owner := pg_notify('a', 'b')::text;")},
		{"clock read into a variable", "execsql", "SET acquired_at = v_clock WHERE", "SET acquired_at = clock_timestamp() WHERE"},
		{"clock read into a variable", "execsql", "WHERE t.resource = p_resource\n       FOR", "WHERE t.resource = p_resource AND t.lease_until < clock_timestamp()\n       FOR"},
		{"clock read into a variable", "condition", "IF v_owner = p_owner THEN", "IF v_owner = p_owner AND v_clock < clock_timestamp() THEN"},
		{"clock read into a variable", "assign", body, do("v_clock := (SELECT clock_timestamp() FROM fence.floor f);")},
		{"tables by their full name", "lease", "UPDATE fence.lease l", "UPDATE lease l"},
		{"tables by their full name", "pg_class", body, do("SELECT c.relname INTO v_owner FROM pg_class c;")},
		{"resource = p_resource", "lease", "SET acquired_at = v_clock WHERE l.resource = p_resource", "SET acquired_at = v_clock WHERE l.owner = p_owner"},
		{"resource = p_resource", "lease", "SET acquired_at = v_clock WHERE l.resource = p_resource", "SET acquired_at = v_clock"},
		{"resource = p_resource", "lease", "SET acquired_at = v_clock WHERE l.resource = p_resource", "SET acquired_at = v_clock WHERE l.resource = p_resource OR l.owner = p_owner"},
		{"resource = p_resource", "lease", "SET acquired_at = v_clock WHERE l.resource = p_resource", "SET acquired_at = v_clock WHERE l.resource >= p_resource"},
		{"resource = p_resource", "lease", "SET acquired_at = v_clock WHERE l.resource = p_resource", "SET acquired_at = v_clock WHERE l.resource = p_owner"},
		{"resource = p_resource", "lease_term", "WHERE l.resource = p_resource AND t.resource = p_resource;", "WHERE l.resource = p_resource;"},
		{"resource = p_resource", "rejection", body, do("DELETE FROM fence.rejection r WHERE r.owner = p_owner;")},
		{"resource = p_resource", "publication", body, do("v_owner := (SELECT p.owner FROM fence.publication p LIMIT 1);")},
		{"resource = p_resource", "SET resource", "SET acquired_at = v_clock WHERE", "SET resource = p_owner, acquired_at = v_clock WHERE"},
		{"resource = p_resource", "publication", "VALUES (p_resource, 1)", "VALUES (p_owner, 1)"},
		{"resource = p_resource", "publication", "(resource, revision)\n        VALUES (p_resource, 1)", "(revision, resource)\n        VALUES (1, p_resource)"},
		{"resource = p_resource", "publication", "VALUES (p_resource, 1)", "SELECT l.resource, 1 FROM fence.lease l WHERE l.resource = p_resource"},
		{"ON CONFLICT (resource …)", "publication", "ON CONFLICT (resource) DO", "ON CONFLICT DO"},
		{"no locking join", "lease, lease_term", "AND t.resource = p_resource;", "AND t.resource = p_resource\n       FOR NO KEY UPDATE OF l;"},
		{"FOR NO KEY UPDATE", "lease", firstSelect, strings.Replace(firstSelect, "FOR NO KEY UPDATE", "FOR UPDATE", 1)},
		{"FOR NO KEY UPDATE", "lease", firstSelect, strings.Replace(firstSelect, "FOR NO KEY UPDATE", "FOR SHARE", 1)},
		{"no SKIP LOCKED or NOWAIT", "lease", firstSelect, strings.Replace(firstSelect, "FOR NO KEY UPDATE", "FOR NO KEY UPDATE SKIP LOCKED", 1)},
		{"no SKIP LOCKED or NOWAIT", "lease", firstSelect, strings.Replace(firstSelect, "FOR NO KEY UPDATE", "FOR NO KEY UPDATE NOWAIT", 1)},
		{"locked by key", "lease", firstSelect, strings.Replace(firstSelect, "FOR NO KEY UPDATE", "LIMIT 1 FOR NO KEY UPDATE", 1)},
		{"locked by key", "publication_key", body, do("SELECT k.owner INTO v_owner FROM fence.publication_key k WHERE k.resource = p_resource FOR NO KEY UPDATE; v_clock := clock_timestamp();")},
		{"lock order", "lease after lease_term", firstSelect, "UPDATE fence.lease_term t SET renewals = 0 WHERE t.resource = p_resource;\n    " + firstSelect},
		{"lock order", "lease after epoch", firstSelect, "SELECT n.epoch INTO v_owner FROM fence.next_generation(1, 1, 1) n;\n    " + firstSelect},
		{"clock after the last lock", "lease", "    v_clock := clock_timestamp();\n    IF", "    IF"},
	}
}

func TestTheRulesRefuseWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	keys := resourceKeys(t)
	found, err := lintRoutine("postgres/touch.sql", goodRoutine, true, keys)
	require.NoError(t, err)
	require.Empty(t, found)
	for _, o := range offences() {
		require.Equal(t, 1, strings.Count(goodRoutine, o.old), "replaces exactly one place: %s", o.old)
		found, err := lintRoutine("postgres/touch.sql", strings.Replace(goodRoutine, o.old, o.new, 1), true, keys)
		if assert.NoError(t, err, "%s", o.new) {
			assert.Contains(t, found, finding{file: "postgres/touch.sql", rule: o.rule, subject: o.subject}, "%s", o.new)
		}
	}
}

func TestAnInternalRoutineHasNoRightsOfItsOwn(t *testing.T) {
	t.Parallel()
	found, err := lintRoutine("postgres/touch.sql", goodRoutine, false, resourceKeys(t))
	require.NoError(t, err)
	var rules []string
	for _, f := range found {
		rules = append(rules, f.rule)
	}
	assert.Subset(t, rules, []string{"SECURITY DEFINER", "search_path", "header"})
}

func TestTheMigrationRulesRefuseWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	good := `CREATE TABLE fence.thing (
    resource text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    made_at timestamptz NOT NULL,
    PRIMARY KEY (resource, owner)
);
`
	script := func(up, down string) string { return "-- +goose Up\n" + up + "-- +goose Down\n" + down }
	found, err := lintMigration("postgres/1.sql", script(good, "DROP TABLE fence.thing;"))
	require.NoError(t, err)
	require.Empty(t, found)
	for _, o := range []offence{
		{"no UNLOGGED", "thing", "CREATE TABLE", "CREATE UNLOGGED TABLE"},
		{"schema fence", "thing", "fence.thing", "thing"},
		{"resource leads every key", "thing", "    PRIMARY KEY (resource, owner)\n", "    CHECK (true)\n"},
		{"resource leads every key", "thing (owner, resource)", "PRIMARY KEY (resource, owner)", "PRIMARY KEY (owner, resource)"},
		{"resource leads every key", "thing (owner)", "PRIMARY KEY (resource, owner)", "PRIMARY KEY (resource, owner), UNIQUE (owner)"},
		{"resource leads every key", "thing", ");\n", ");\nCREATE UNIQUE INDEX ON fence.thing (owner, resource);\n"},
		{"no second index on hot tables", "lease_term", ");\n", ");\nCREATE INDEX ON fence.lease_term (resource, lease_until);\n"},
		{"no second index on hot tables", "lease", ");\n", ");\nCREATE INDEX ON fence.lease (owner);\n"},
		{`names are text COLLATE "C"`, "thing.owner", "owner text COLLATE \"C\" NOT NULL", "owner text NOT NULL"},
		{`names are text COLLATE "C"`, "thing.resource", "resource text COLLATE \"C\"", "resource varchar(255) COLLATE \"C\""},
		{"times are timestamptz", "thing.made_at", "made_at timestamptz", "made_at timestamp"},
		{"no foreign key", "thing", "PRIMARY KEY (resource, owner)", "PRIMARY KEY (resource, owner), FOREIGN KEY (resource) REFERENCES fence.lease"},
		{"no trigger", "lease", ");\n", ");\nCREATE TRIGGER t BEFORE UPDATE ON fence.lease FOR EACH ROW EXECUTE FUNCTION fence.f();\n"},
		{"statement kinds", "CreateSeqStmt", ");\n", ");\nCREATE SEQUENCE fence.numbers;\n"},
	} {
		require.Equal(t, 1, strings.Count(good, o.old), "replaces exactly one place: %s", o.old)
		found, err := lintMigration("postgres/1.sql", script(strings.Replace(good, o.old, o.new, 1), "SELECT 1;"))
		require.NoError(t, err)
		assert.Contains(t, found, finding{file: "postgres/1.sql", rule: o.rule, subject: o.subject}, "%s", o.new)
	}
	for down, want := range map[string]finding{
		"DROP TABLE fence.epoch;":         {rule: "floor and epoch stay", subject: "epoch"},
		"DROP TABLE fence.lease CASCADE;": {rule: "no CASCADE", subject: "drop"},
	} {
		found, err := lintMigration("postgres/1.sql", script(good, down))
		require.NoError(t, err)
		want.file = "postgres/1.sql"
		assert.Equal(t, []finding{want}, found)
	}
}

// The applier sends the files in this order, and a file is never sent without its name in the list.
func TestEveryFileIsARoutineThatExists(t *testing.T) {
	t.Parallel()
	for _, walTimeline := range []bool{true, false} {
		for _, routine := range procs.Postgres(walTimeline) {
			assert.Contains(t, routine.Source(), "FUNCTION fence."+routine.Name+"(", path.Base(routine.File))
		}
	}
}
