package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-sql/civil"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/migrations"
	"github.com/fencectl/fencectl/procs"
)

// sqlServer is a server that speaks T-SQL: SQL Server, or Babelfish in its place.
type sqlServer struct {
	title string
	dsn   func(database string) string
	admin *sql.DB

	// Babelfish is a PostgreSQL server underneath, which can tell who waits, and lock a table for readers:
	// neither can be said in the T-SQL that it understands. Both are nil for SQL Server.
	babelfish *devdb.Babelfish
	beneath   *pgxpool.Pool

	mu   sync.Mutex
	free []*sqlServerDatabase // emptied, for the next test
}

// startSQLServerEngines starts what the environment asks for: see the package comment.
func startSQLServerEngines(ctx context.Context) (engines []engine, missing []string, err error) {
	if os.Getenv(envMutation) != "" {
		return nil, nil, nil // mutations are of the PostgreSQL routines
	}
	if dsn := os.Getenv("FENCECTL_TEST_MSSQL_DSN"); dsn != "" {
		e, err := adoptSQLServer(ctx, dsn)
		if err != nil {
			return nil, nil, fmt.Errorf("FENCECTL_TEST_MSSQL_DSN: %w", err)
		}
		return []engine{e}, nil, nil
	}
	if os.Getenv("FENCECTL_TEST_MSSQL") == "off" {
		return nil, []string{"SQL Server: not run: FENCECTL_TEST_MSSQL is off"}, nil
	}
	e, err := startBabelfish(ctx)
	if errors.Is(err, devdb.ErrNoBabelfish) {
		return nil, []string{"SQL Server: not run: FENCECTL_TEST_MSSQL_DSN names none, and there is no Babelfish on this machine"}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return []engine{e}, []string{"SQL Server itself: not run: FENCECTL_TEST_MSSQL_DSN names none"}, nil
}

// adoptSQLServer runs the suite on a server that somebody else started, whose login may create databases.
func adoptSQLServer(ctx context.Context, dsn string) (*sqlServer, error) {
	parsed, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("it is not a URL") // the error would show the password
	}
	e := &sqlServer{dsn: func(database string) string {
		at := *parsed
		values := at.Query()
		values.Set("database", database)
		at.RawQuery = values.Encode()
		return at.String()
	}}
	if err := e.open(ctx, "SQL Server "); err != nil {
		return nil, err
	}
	return e, nil
}

func startBabelfish(ctx context.Context) (*sqlServer, error) {
	settings := devdb.TestSettings()
	settings["statement_timeout"] = "60s" // the driver's cancelling is ignored here
	server, err := devdb.StartBabelfish(ctx, devdb.Options{Settings: settings})
	if err != nil {
		return nil, err
	}
	e := &sqlServer{dsn: server.DSN, babelfish: server}
	if err := e.open(ctx, "Babelfish "+server.Version()+" as SQL Server "); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	config, err := pgxpool.ParseConfig(server.PostgresDSN())
	if err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	config.MaxConns = 20
	if e.beneath, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

func (e *sqlServer) open(ctx context.Context, title string) (err error) {
	if e.admin, err = sql.Open("sqlserver", e.dsn("master")); err != nil {
		return err
	}
	var version string
	err = e.admin.QueryRowContext(ctx, "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))").Scan(&version)
	e.title = title + version
	return err
}

func (e *sqlServer) name() string { return e.title }

func (e *sqlServer) can(need capability) bool {
	switch need {
	case directSessions:
		return true
	case lockHints:
		return e.babelfish == nil // it understands and forgets them
	}
	return false
}

func (e *sqlServer) stop(ctx context.Context) error {
	var err error
	for d := e.returned(); d != nil; d = e.returned() {
		if e.babelfish == nil {
			err = errors.Join(err, d.drop(ctx))
		} else {
			err = errors.Join(err, d.pool.Close()) // it goes with the server
		}
	}
	if e.admin != nil {
		err = errors.Join(err, e.admin.Close())
	}
	if e.beneath != nil {
		e.beneath.Close()
	}
	if e.babelfish != nil {
		err = errors.Join(err, e.babelfish.Stop(ctx))
	}
	return err
}

func (e *sqlServer) create(t *testing.T) backend {
	t.Helper()
	d, err := e.install(t.Context())
	require.NoError(t, err, "create database")
	t.Cleanup(func() { d.dropped(t) })
	return d
}

// lend hands out databases again after it has emptied them: there are no copies of a template here.
func (e *sqlServer) lend(t *testing.T) backend {
	t.Helper()
	d := e.returned()
	if d == nil {
		var err error
		d, err = e.install(t.Context())
		require.NoError(t, err, "create database")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() || d.empty(ctx) != nil {
			d.dropped(t)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.free = append(e.free, d)
	})
	return d
}

// returned takes a database that a test has given back, or nil.
func (e *sqlServer) returned() *sqlServerDatabase {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.free) == 0 {
		return nil
	}
	d := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return d
}

// install makes a database and applies the migrations and the routines.
func (e *sqlServer) install(ctx context.Context) (*sqlServerDatabase, error) {
	name := databaseName("db")
	if _, err := e.admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	pool, err := sql.Open("sqlserver", e.dsn(name))
	if err != nil {
		return nil, err
	}
	pool.SetMaxIdleConns(16) // the first statements of a connection take long: sessions get used ones
	d := &sqlServerDatabase{engine: e, database: name, pool: pool, sessions: map[string][]int32{}}
	if _, err := pool.ExecContext(ctx, "CREATE SCHEMA fence"); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	files, err := goose.NewProvider(goose.DialectMSSQL, pool, under(migrations.MSSQL, "mssql"),
		goose.WithTableName("fence.goose_db_version"), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	if _, err := files.Up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate: %w", err), pool.Close())
	}
	for _, routine := range procs.MSSQL() {
		if _, err := pool.ExecContext(ctx, routine.Source()); err != nil {
			return nil, errors.Join(fmt.Errorf("apply %s: %w", routine.File, err), pool.Close())
		}
	}
	return d, nil
}

// sqlServerDatabase is a migrated database.
type sqlServerDatabase struct {
	engine   *sqlServer
	database string
	pool     *sql.DB

	mu       sync.Mutex
	sessions map[string][]int32 // server processes of each session, by its name
}

// empty brings the database back to the state after its migration. What behaviours make for themselves is in
// the schema app.
func (d *sqlServerDatabase) empty(ctx context.Context) error {
	d.mu.Lock()
	clear(d.sessions)
	d.mu.Unlock()
	for _, statement := range []string{
		`SET LOCK_TIMEOUT 10000;
		 DELETE FROM fence.lease;
		 DELETE FROM fence.lease_term;
		 DELETE FROM fence.intervention;
		 DELETE FROM fence.publication;
		 DELETE FROM fence.publication_key;
		 DELETE FROM fence.late_publication;
		 DELETE FROM fence.rejection;
		 UPDATE fence.floor SET at_least = 0;
		 UPDATE fence.epoch SET epoch = 1, recovery_fork_guid = NULL;
		 SET LOCK_TIMEOUT -1;`,
		"DROP TABLE IF EXISTS app.report",
		"DROP SCHEMA IF EXISTS app",
	} {
		if _, err := d.pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (d *sqlServerDatabase) drop(ctx context.Context) error {
	err := d.pool.Close()
	if d.engine.babelfish == nil {
		_, dropErr := d.engine.admin.ExecContext(ctx,
			"ALTER DATABASE "+d.database+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE "+d.database)
		err = errors.Join(err, dropErr)
	}
	return err // that of Babelfish goes with the server
}

func (d *sqlServerDatabase) dropped(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.drop(ctx); err != nil {
		t.Errorf("drop database: %v", err)
	}
}

func (d *sqlServerDatabase) connect(ctx context.Context, name string) (connection, error) {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var process int32
	if err := conn.QueryRowContext(ctx, "SELECT CAST(@@SPID AS int)").Scan(&process); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	d.belongs(name, process)
	return newSQLServerConnection(d, conn, name), nil
}

// belongs notes that a server process works for the session.
func (d *sqlServerDatabase) belongs(name string, process int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[name] = append(d.sessions[name], process)
}

func (d *sqlServerDatabase) waits(ctx context.Context, name string) (waits bool, err error) {
	d.mu.Lock()
	processes := slices.Clone(d.sessions[name])
	d.mu.Unlock()
	if d.engine.beneath != nil {
		err = d.engine.beneath.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY($1) AND wait_event_type = 'Lock')`,
			processes).Scan(&waits)
		return waits, err
	}
	for _, process := range processes {
		var waiting int
		err := d.pool.QueryRowContext(ctx, `
			SELECT COUNT(*) FROM sys.dm_exec_requests WHERE session_id = @p1 AND wait_type LIKE 'LCK%'`,
			process).Scan(&waiting)
		if err != nil || waiting > 0 {
			return waiting > 0, err
		}
	}
	return false, nil
}

func (d *sqlServerDatabase) clock(ctx context.Context) (now time.Time, err error) {
	err = d.pool.QueryRowContext(ctx, "SELECT SYSUTCDATETIME()").Scan(&now)
	return now, err
}

// shift splits the duration: DATEADD takes an int, in which microseconds last for half an hour.
func (d *sqlServerDatabase) shift(ctx context.Context, table, resource string, by time.Duration, columns ...string) error {
	var changes []string
	for _, column := range columns {
		changes = append(changes, fmt.Sprintf(
			"%[1]s = DATEADD(microsecond, -CAST(@p3 AS int), DATEADD(second, -CAST(@p2 AS int), %[1]s))", column))
	}
	_, err := d.pool.ExecContext(ctx,
		fmt.Sprintf("UPDATE fence.%s SET %s WHERE resource = @p1", table, strings.Join(changes, ", ")),
		resource, by.Microseconds()/1_000_000, by.Microseconds()%1_000_000)
	return err
}

func (d *sqlServerDatabase) execute(ctx context.Context, statement string, arguments ...any) error {
	_, err := d.pool.ExecContext(ctx, inTSQL(statement), typed(arguments)...)
	return err
}

func (d *sqlServerDatabase) read(ctx context.Context, row func(scan func(...any) error) error, query string, arguments ...any) error {
	rows, err := d.pool.QueryContext(ctx, inTSQL(query), typed(arguments)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// under is the folder of a file system; a name that is wrong would show as no migrations.
func under(files fs.FS, folder string) fs.FS {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // only of a name that cannot be one
	}
	return sub
}

func (d *sqlServerDatabase) log() (string, error) {
	return "", errors.New("the server's log is not at hand")
}

// inTSQL writes a statement's parameters as T-SQL does.
func inTSQL(statement string) string {
	return regexp.MustCompile(`\$(\d+)`).ReplaceAllString(statement, "@p$1")
}

// typed gives the arguments the types that the driver has for them.
func typed(arguments []any) (all []any) {
	for _, argument := range arguments {
		switch value := argument.(type) {
		case uuid.UUID:
			argument = mssql.UniqueIdentifier(value)
		case time.Time:
			argument = civil.DateTimeOf(value.UTC())
		}
		all = append(all, argument)
	}
	return all
}
