package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/procs"
)

// notPermitted is the SQLSTATE of a call or a statement that the user has no right to.
const notPermitted = "42501"

// guarded is a migrated PostgreSQL database with the roles and their grants, and logins that are members.
type guarded struct {
	*postgresDatabase
	t     *testing.T
	admin *pgx.Conn
}

// eachGuarded runs a test on each PostgreSQL of the run.
func eachGuarded(t *testing.T, test func(t *testing.T, db *guarded)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, e engine) {
		test(t, newGuarded(t, plain(t, e)))
	})
}

func newGuarded(t *testing.T, server *postgres) *guarded {
	t.Helper()
	db := server.create(t).(*postgresDatabase)
	admin, err := pgx.Connect(t.Context(), server.dsn(db.database))
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	return &guarded{postgresDatabase: db, t: t, admin: admin}
}

// login makes a login that is a member of the roles, and connects as it.
func (g *guarded) login(roles ...string) *pgx.Conn {
	g.t.Helper()
	name := databaseName("login")
	g.does(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD %s", name, "'open sesame'"))
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := g.admin.Exec(ctx, fmt.Sprintf("DROP OWNED BY %[1]s CASCADE; DROP ROLE %[1]s", name)); err != nil {
			g.t.Errorf("drop login: %v", err)
		}
	})
	for _, role := range roles {
		g.does(fmt.Sprintf("GRANT %s TO %s", role, name))
	}
	config, err := pgx.ParseConfig(g.engine.dsn(g.database))
	require.NoError(g.t, err)
	config.User, config.Password = name, "open sesame"
	conn, err := pgx.ConnectConfig(g.t.Context(), config)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (g *guarded) does(statement string, arguments ...any) {
	g.t.Helper()
	_, err := g.admin.Exec(g.t.Context(), statement, arguments...)
	require.NoError(g.t, err)
}

// names reads one column of text.
func (g *guarded) names(query string, arguments ...any) []string {
	g.t.Helper()
	rows, err := g.admin.Query(g.t.Context(), query, arguments...)
	require.NoError(g.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(g.t, err)
	return names
}

// attempt runs a statement in a transaction of its own that is rolled back, and returns its SQLSTATE: empty
// when it went well.
func attempt(t *testing.T, conn *pgx.Conn, statement string) string {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), statement)
	require.NoError(t, tx.Rollback(t.Context()))
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	require.NoError(t, err)
	return ""
}

// attempts is a call of every routine of the schema that goes well for those who may make it, on the lease of
// the resource 'r' with the owner 'o' and the generation 1.
func attempts() map[string]string {
	return map[string]string{
		"acquire":     "'other', 'o', 1000",
		"renew":       "'r', 'o', 1, 1000",
		"release":     "'r', 'o', 1",
		"publish":     "'r', 'o', 1, 'x'",
		"check":       "'r', 'o', 1",
		"require":     "'r', 'o', 1",
		"diagnose":    "'r', 'o', 1",
		"seize":       "'r', 1, 'by'",
		"raise_floor": "NULL, 5",
		"remove":      "'r', 1, 'by'",
		"prune":       "1000",
		"about":       "",

		"assert_name":      "'a', 'name'",
		"assert_duration":  "1, 'ttl'",
		"assert_token":     "'r', 'o', 1",
		"assert_policy":    "'unexpired'",
		"examine_name":     "'a', 'name'",
		"examine_duration": "1, 'ttl'",
		"examine_token":    "'r', 'o', 1",
		"examine_policy":   "'unexpired'",
		"refusal_reason":   "1, 'o', 1, 'o', NULL",
		"time_reason":      "'unexpired', NULL, NULL, NULL, NULL",
		"bound_lock_wait":  "'0'",
		"bound_idle_time":  "1000",
		"timeline":         "",
		"next_generation":  "1, 1, 1",
		"next_number":      "1, 1, 1, 1, 1",
		"record_rejection": "'r', 'renew', 'superseded', 1, 'o', 2, 'p', NULL, clock_timestamp()",
	}
}

// principals are the roles of the fence, and one with no right at all: what PUBLIC may do.
func principals() []procs.Role {
	return append(procs.Roles(), procs.Role{Name: "nobody"})
}

func (g *guarded) loginAs(role procs.Role) *pgx.Conn {
	g.t.Helper()
	if role.Name == "nobody" {
		return g.login()
	}
	return g.login(role.Name)
}

func TestEachRoleExecutesExactlyItsRoutines(t *testing.T) {
	t.Parallel()
	eachGuarded(t, func(t *testing.T, db *guarded) {
		db.does("SELECT fence.acquire('r', 'o', 600000)")
		routines := db.names("SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'fence'::regnamespace")
		require.ElementsMatch(t, routines, slices.Collect(maps.Keys(attempts())), "a call for every routine")
		for _, role := range principals() {
			conn := db.loginAs(role)
			for _, routine := range routines {
				want := notPermitted
				if slices.Contains(role.Routines, routine) {
					want = ""
				}
				statement := fmt.Sprintf("SELECT * FROM fence.%s(%s)", routine, attempts()[routine])
				assert.Equal(t, want, attempt(t, conn, statement), "%s: %s", role.Name, statement)
			}
		}
	})
}

func TestEachRoleReadsExactlyItsViewsAndTouchesNoTable(t *testing.T) {
	t.Parallel()
	eachGuarded(t, func(t *testing.T, db *guarded) {
		relations := db.names(`
			SELECT c.relname::text FROM pg_class c
			 WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p', 'f')`)
		require.Subset(t, relations, []string{"lease", "lease_term", "epoch", "floor", "goose_db_version", "lease_status"})
		for _, role := range principals() {
			conn := db.loginAs(role)
			for _, relation := range relations {
				want := notPermitted
				if slices.Contains(role.Views, relation) {
					want = ""
				}
				assert.Equal(t, want, attempt(t, conn, "SELECT count(*) FROM fence."+relation), "%s reads %s", role.Name, relation)
				assert.Equal(t, want, attempt(t, conn, "SELECT * FROM fence."+relation), "%s reads %s", role.Name, relation)
				for _, write := range []string{
					"INSERT INTO fence.%s DEFAULT VALUES", "DELETE FROM fence.%s", "TRUNCATE fence.%s",
					"LOCK TABLE fence.%s IN ACCESS EXCLUSIVE MODE", "SELECT 1 FROM fence.%s FOR UPDATE",
					"COPY fence.%s FROM STDIN", "ALTER TABLE fence.%s ADD COLUMN mine text",
				} {
					assert.NotEmpty(t, attempt(t, conn, fmt.Sprintf(write, relation)), "%s: "+write, role.Name, relation)
				}
			}
		}
	})
}

// right is one privilege in the catalogue.
type right struct {
	Grantee, Object, Privilege string
}

// expectedRights is the matrix as the catalogue shows it.
func expectedRights() []right {
	var rights []right
	for _, role := range procs.Roles() {
		rights = append(rights, right{role.Name, "schema fence", "USAGE"})
		for _, routine := range role.Routines {
			rights = append(rights, right{role.Name, routine, "EXECUTE"})
		}
		for _, view := range role.Views {
			rights = append(rights, right{role.Name, view, "SELECT"})
		}
	}
	return rights
}

func TestTheCatalogueHoldsExactlyTheMatrix(t *testing.T) {
	t.Parallel()
	eachGuarded(t, func(t *testing.T, db *guarded) {
		rows, err := db.admin.Query(t.Context(), `
			WITH acls (object, owner, acl) AS (
			    SELECT 'schema fence', n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
			      FROM pg_namespace n WHERE n.nspname = 'fence'
			    UNION ALL
			    SELECT p.proname, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
			      FROM pg_proc p WHERE p.pronamespace = 'fence'::regnamespace
			    UNION ALL
			    SELECT c.relname, c.relowner,
			           coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))
			      FROM pg_class c WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind NOT IN ('i', 'c')
			    UNION ALL
			    SELECT c.relname || '.' || a.attname, c.relowner, a.attacl
			      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			     WHERE c.relnamespace = 'fence'::regnamespace AND a.attacl IS NOT NULL
			    UNION ALL
			    SELECT t.typname, t.typowner, t.typacl
			      FROM pg_type t WHERE t.typnamespace = 'fence'::regnamespace AND t.typacl IS NOT NULL
			)
			SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, acls.object::text,
			       a.privilege_type || CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
			  FROM acls, LATERAL aclexplode(acls.acl) a
			 WHERE a.grantee <> acls.owner`)
		require.NoError(t, err)
		rights, err := pgx.CollectRows(rows, pgx.RowToStructByPos[right])
		require.NoError(t, err)
		assert.ElementsMatch(t, expectedRights(), rights)
	})
}

func TestAWorkerCannotGiveItselfMore(t *testing.T) {
	t.Parallel()
	eachGuarded(t, func(t *testing.T, db *guarded) {
		conn := db.login("fence_worker")
		me := conn.Config().User
		for _, statement := range []string{
			"GRANT fence_operator TO " + me,
			"GRANT fence_worker TO fence_operator",
			"SET ROLE fence_operator",
			"SET SESSION AUTHORIZATION fence_operator",
			"ALTER ROLE " + me + " SUPERUSER",
			"ALTER ROLE fence_worker LOGIN",
			"GRANT EXECUTE ON FUNCTION fence.seize(text, bigint, text, text) TO " + me,
			"GRANT SELECT ON fence.lease TO " + me,
			"ALTER FUNCTION fence.renew(text, text, bigint, bigint) SECURITY INVOKER",
			"ALTER FUNCTION fence.renew(text, text, bigint, bigint) RESET search_path",
			"ALTER FUNCTION fence.renew(text, text, bigint, bigint) OWNER TO " + me,
			"DROP FUNCTION fence.renew(text, text, bigint, bigint)",
			"CREATE FUNCTION fence.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
			"CREATE OR REPLACE FUNCTION fence.assert_name(p_value text, p_argument text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			"CREATE TABLE fence.mine (a int)",
			"ALTER SCHEMA fence OWNER TO " + me,
			"SET session_replication_role = replica",
		} {
			assert.Equal(t, notPermitted, attempt(t, conn, statement), statement)
		}
		// Rights that one has without the option to pass them on: PostgreSQL only warns, and grants nothing.
		for _, statement := range []string{
			"GRANT ALL ON SCHEMA fence TO PUBLIC", "GRANT EXECUTE ON FUNCTION fence.about() TO PUBLIC",
		} {
			_, err := conn.Exec(t.Context(), statement)
			require.NoError(t, err)
		}
		assert.Equal(t, notPermitted, attempt(t, conn, "CREATE TABLE fence.mine (a int)"))
		assert.Equal(t, notPermitted, attempt(t, db.login(), "SELECT fence.about()"))
	})
}

// A caller who owns a schema, and may make temporary objects, offers the routines everything that they use
// under its own name: tables, types, functions, operators. Whoever makes a routine take one of them runs code
// with the rights of the fence's owner.
func TestNothingThatACallerCreatesOrSetsReachesTheRoutines(t *testing.T) {
	t.Parallel()
	eachGuarded(t, func(t *testing.T, db *guarded) {
		conn := db.login("fence_worker")
		me := conn.Config().User
		db.does("CREATE SCHEMA attacker AUTHORIZATION " + me)
		for _, script := range shadows() {
			_, err := conn.Exec(t.Context(), script)
			require.NoError(t, err, script)
		}
		before := db.names("SELECT clock_timestamp()::text")[0]
		for i, call := range []string{
			"SELECT a.outcome FROM fence.acquire('r', 'o', 60000, '6f1c0f6e-0a0a-4d52-8d5e-0a54a3f7c001', '{}') a",
			"SELECT c.outcome FROM fence.check('r', 'o', 1, 'unexpired') c",
			"SELECT c.outcome FROM fence.require('r', 'o', 1) c",
			"SELECT p.outcome FROM fence.publish('r', 'o', 1, 'x', 'text/plain', 'key', 'unexpired', '2020-01-01', 315576000000) p",
			"SELECT r.outcome FROM fence.renew('r', 'o', 1, 60000) r",
			"SELECT d.reason FROM fence.diagnose('r', 'o', 1) d",
			"SELECT r.outcome FROM fence.release('r', 'o', 1) r",
		} {
			var outcome string
			require.NoError(t, conn.QueryRow(t.Context(), call).Scan(&outcome), call)
			assert.Equal(t, []string{"acquired", "ok", "ok", "accepted", "renewed", "unknown", "released"}[i], outcome, call)
		}
		for _, statement := range []string{
			"SELECT fence.acquire(E'a\\nb', 'o', 60000)", "SELECT fence.acquire(' a', 'o', 60000)", "SELECT fence.acquire('a', 'o', 0)",
		} {
			assert.Equal(t, "FN001", attempt(t, conn, statement), statement)
		}

		assert.Empty(t, db.names("SELECT s.who FROM attacker.seen s"), "the caller's code ran")
		assert.Equal(t, []string{"r"}, db.names(`
			SELECT l.resource FROM fence.lease l JOIN fence.lease_term t ON t.resource = l.resource
			 WHERE l.acquired_at >= $1::text::timestamptz AND l.released_at <= clock_timestamp()
			   AND t.renewed_at >= l.acquired_at AND t.lease_until < clock_timestamp() + interval '1 minute'`, before))
		for _, table := range []string{"lease", "lease_term", "publication", "publication_key", "rejection"} {
			var rows int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_temp."+table).Scan(&rows))
			assert.Zero(t, rows, "the caller's table %s", table)
		}
	})
}

// shadows are the statements that prepare the attack. Whatever of it runs inside a routine reports in
// attacker.seen.
func shadows() []string {
	scripts := []string{`
		CREATE TABLE attacker.seen (who text);
		GRANT USAGE ON SCHEMA attacker TO PUBLIC;
		GRANT ALL ON attacker.seen TO PUBLIC;
		CREATE FUNCTION attacker.spy() RETURNS boolean LANGUAGE sql VOLATILE
		    AS $$ INSERT INTO attacker.seen VALUES (current_user) RETURNING true $$;`}
	for _, table := range []string{"lease", "lease_term", "publication", "publication_key", "rejection", "floor", "epoch"} {
		scripts = append(scripts, fmt.Sprintf(`
			CREATE TEMP TABLE %s (resource text, generation bigint, owner text, lease_until timestamptz, at_least bigint, epoch bigint)`, table))
	}
	spied := func(schema, name, parameters, result, value string) string {
		return fmt.Sprintf(`CREATE FUNCTION %s.%s(%s) RETURNS %s LANGUAGE plpgsql VOLATILE
			AS $$ BEGIN INSERT INTO attacker.seen VALUES (current_user || ': %[2]s'); RETURN %[5]s; END $$`,
			schema, name, parameters, result, value)
	}
	for _, schema := range []string{"attacker", "pg_temp"} {
		scripts = append(scripts,
			spied(schema, "clock_timestamp", "", "timestamptz", "'2100-01-01'"),
			spied(schema, "assert_name", "text, text", "boolean", "true"),
			spied(schema, "assert_token", "text, text, bigint", "boolean", "true"),
			spied(schema, "refusal_reason", "bigint, text, bigint, text, timestamptz", "text", "NULL"),
			spied(schema, "set_config", "text, text, boolean", "text", "'0'"),
			spied(schema, "current_setting", "text", "text", "'serializable'"),
			spied(schema, "sha256", "bytea", "bytea", "''"),
			spied(schema, "char_length", "text", "integer", "1"),
			spied(schema, "gen_random_uuid", "", "uuid", "NULL"),
			spied(schema, "jsonb_typeof", "jsonb", "text", "'object'"),
			spied(schema, "text_differs", "text, text", "boolean", "false"),
			spied(schema, "number_is_less", "bigint, integer", "boolean", "false"),
			spied(schema, "later", "bigint, interval", "interval", "'0'"),
			fmt.Sprintf("CREATE OPERATOR %[1]s.<> (FUNCTION = %[1]s.text_differs, LEFTARG = text, RIGHTARG = text)", schema),
			fmt.Sprintf("CREATE OPERATOR %[1]s.< (FUNCTION = %[1]s.number_is_less, LEFTARG = bigint, RIGHTARG = integer)", schema),
			// An exact match where PostgreSQL itself has only one that converts its operands.
			fmt.Sprintf("CREATE OPERATOR %[1]s.* (FUNCTION = %[1]s.later, LEFTARG = bigint, RIGHTARG = interval)", schema),
		)
		for _, domain := range []string{"text", "timestamptz", "bytea", "bool", "uuid", "jsonb"} {
			scripts = append(scripts, fmt.Sprintf(
				"CREATE DOMAIN %s.%s AS pg_catalog.%[2]s CHECK (attacker.spy())", schema, domain))
		}
	}
	return append(scripts, strings.TrimSpace(`
		SET search_path = pg_temp, attacker, pg_catalog;
		SET standard_conforming_strings = off;
		SET escape_string_warning = off;
		SET IntervalStyle = 'sql_standard';
		SET DateStyle = 'SQL, DMY';
		SET TimeZone = 'Pacific/Kiritimati';
		SET extra_float_digits = -15;
		SET check_function_bodies = off;
		SET transform_null_equals = on;
		DELETE FROM attacker.seen`))
}
