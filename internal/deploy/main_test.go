package deploy_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// shared is the server of most tests; each has databases of its own there. Roles belong to the server.
var shared *testServer

type testServer struct{ *devdb.Server }

// childVariable makes the test binary a program that runs one command and may kill itself on the way.
const childVariable = "FENCECTL_DEPLOY_CHILD"

// child is that program; nil where processes cannot be killed by signals.
var child func() int

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" && child != nil {
		os.Exit(child())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	server, err := devdb.StartPostgres(ctx, serverOptions())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = server.Stop(ctx) }()
	shared = &testServer{server}
	fmt.Println("deploy: PostgreSQL", server.Version())
	defer func() {
		if babelfish.server != nil {
			_ = babelfish.server.Stop(ctx)
		}
	}()
	return m.Run()
}

// serverOptions take the version from FENCECTL_TEST_PG where that is one version.
func serverOptions() devdb.Options {
	settings := devdb.TestSettings()
	settings["max_prepared_transactions"] = "5"
	settings["max_connections"] = "200"
	options := devdb.Options{Settings: settings, LocalOnly: true}
	if version := os.Getenv("FENCECTL_TEST_PG"); version != "all" {
		options.Version = version
	}
	return options
}

// newServer starts a server for one test.
func newServer(t *testing.T) *testServer {
	t.Helper()
	server, err := devdb.StartPostgres(context.Background(), serverOptions())
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return &testServer{server}
}

var databaseCount atomic.Int64

// newDatabase returns an empty database.
func (s *testServer) newDatabase(t *testing.T) *database {
	t.Helper()
	name := fmt.Sprintf("deploy_%d", databaseCount.Add(1))
	require.NoError(t, s.CreateDatabase(context.Background(), name, ""))
	return &database{t: t, name: name, dsn: s.DSN(name)}
}

// dropRoles drops our roles with all that depends on them.
func (s *testServer) dropRoles(t *testing.T) {
	t.Helper()
	conn := connect(t, s.DSN("postgres"))
	rows, err := conn.Query(context.Background(), "SELECT datname::text FROM pg_database WHERE datname LIKE 'deploy%'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, s.DropDatabase(context.Background(), name))
	}
	for _, role := range procs.Roles() {
		_, err := conn.Exec(context.Background(), "DROP ROLE IF EXISTS "+role.Name)
		require.NoError(t, err)
	}
}

func newDatabase(t *testing.T) *database { return shared.newDatabase(t) }

// newInstalled returns a database with a fence.
func newInstalled(t *testing.T) *database {
	t.Helper()
	db := newDatabase(t)
	db.migrate()
	return db
}

type database struct {
	t    *testing.T
	name string
	dsn  string
}

func (db *database) deployer() *deploy.Deployer { return deployerFor(db.t, db.dsn) }

func deployerFor(t *testing.T, dsn string) *deploy.Deployer {
	t.Helper()
	e, err := engine.Open(dsn, engine.Options{})
	require.NoError(t, err)
	return deploy.New(e)
}

func (db *database) migrate() deploy.MigrateResult {
	db.t.Helper()
	result, err := db.deployer().Migrate(context.Background(), deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	require.NoError(db.t, err)
	return result
}

func (db *database) verify() deploy.VerifyResult {
	db.t.Helper()
	result, err := db.deployer().Verify(context.Background())
	require.NoError(db.t, err)
	return result
}

// clean requires that there is nothing to mend.
func (db *database) clean() {
	db.t.Helper()
	require.Empty(db.t, db.verify().Differences)
}

// connect opens a session that ends with the test.
func (db *database) connect() *pgx.Conn { return connect(db.t, db.dsn) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs a batch as the superuser.
func (db *database) exec(sql string, args ...any) {
	db.t.Helper()
	conn, err := pgx.Connect(context.Background(), db.dsn)
	require.NoError(db.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(context.Background(), sql, args...)
	require.NoError(db.t, err)
}

// text returns the first column of the first row.
func (db *database) text(sql string, args ...any) string {
	db.t.Helper()
	conn, err := pgx.Connect(context.Background(), db.dsn)
	require.NoError(db.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var value *string
	require.NoError(db.t, conn.QueryRow(context.Background(), sql, args...).Scan(&value))
	if value == nil {
		return ""
	}
	return *value
}

var userCount atomic.Int64

// as returns the same database for a new user; attributes and grants are SQL.
func (db *database) as(attributes string, grants ...string) *database {
	db.t.Helper()
	name := fmt.Sprintf("deploy_user_%d", userCount.Add(1))
	db.exec(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret' %s", name, attributes))
	for _, grant := range grants {
		db.exec(strings.ReplaceAll(grant, "$user", name))
	}
	config, err := pgx.ParseConfig(db.dsn)
	require.NoError(db.t, err)
	return &database{t: db.t, name: db.name,
		dsn: fmt.Sprintf("postgres://%s:secret@%s:%d/%s?sslmode=disable", name, config.Host, config.Port, db.name)}
}

// user is the name in the database's DSN.
func (db *database) user() string {
	config, err := pgx.ParseConfig(db.dsn)
	require.NoError(db.t, err)
	return config.User
}
