package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	fenceengine "github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

// postgres is a PostgreSQL server with a migrated template database.
type postgres struct {
	title    string
	server   *devdb.Server // nil for a server that was there before
	dsn      func(database string) string
	template string

	admin *pgxpool.Pool

	mu   sync.Mutex
	free []*postgresDatabase // emptied, for the next test
}

// startPostgresEngines starts what the environment asks for: see the package comment.
func startPostgresEngines(ctx context.Context) (engines []engine, missing []string, err error) {
	if dsn := os.Getenv("FENCECTL_TEST_PG_DSN"); dsn != "" {
		e, err := adoptPostgres(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return []engine{e}, nil, nil
	}
	if os.Getenv("FENCECTL_TEST_PG") == "off" {
		return nil, []string{"PostgreSQL: not run: FENCECTL_TEST_PG is off"}, nil
	}
	versions := []string{os.Getenv("FENCECTL_TEST_PG")}
	if versions[0] == "all" {
		if versions, missing, err = installedVersions(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, version := range versions {
		e, err := startPostgres(ctx, version)
		if err != nil {
			for _, started := range engines {
				err = errors.Join(err, started.stop(ctx))
			}
			return nil, nil, err
		}
		engines = append(engines, e)
	}
	pool, absent, err := poolFor(ctx, engines[0].(*postgres))
	if err != nil {
		for _, started := range engines {
			err = errors.Join(err, started.stop(ctx))
		}
		return nil, nil, err
	}
	if pool != nil {
		engines = append(engines, pool)
	} else {
		missing = append(missing, absent)
	}
	return engines, missing, nil
}

// installedVersions returns the supported versions that are on this machine, and a line for each that is not.
func installedVersions(ctx context.Context) (versions, missing []string, err error) {
	installed, err := devdb.Installed(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, version := range []string{"14", "15", "16", "17", "18"} {
		if slices.ContainsFunc(installed, func(i devdb.Installation) bool { return i.Major() == version }) {
			versions = append(versions, version)
		} else {
			missing = append(missing, fmt.Sprintf("PostgreSQL %s: not run: not installed", version))
		}
	}
	return versions, missing, nil
}

func startPostgres(ctx context.Context, version string) (engine, error) {
	server, err := devdb.StartPostgres(ctx, devdb.Options{Version: version, Settings: devdb.TestSettings()})
	if err != nil {
		return nil, err
	}
	e := &postgres{title: "PostgreSQL " + server.Version(), server: server, dsn: server.DSN}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

// adoptPostgres runs the suite on a server that somebody else started.
func adoptPostgres(ctx context.Context, dsn string) (engine, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("FENCECTL_TEST_PG_DSN: %w", err)
	}
	defer conn.Close(ctx)
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	e := &postgres{title: "PostgreSQL " + version, dsn: func(database string) string { return inDatabase(dsn, database) }}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

// inDatabase is the DSN, a URL or keywords, with another database.
func inDatabase(dsn, database string) string {
	if parsed, err := url.Parse(dsn); err == nil && parsed.Scheme != "" {
		parsed.Path = "/" + database
		return parsed.String()
	}
	return dsn + " dbname=" + database
}

// prepare migrates the template that every test's database is a copy of.
func (e *postgres) prepare(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(e.dsn("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = 2
	if e.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	template := databaseName("template")
	if _, err := e.admin.Exec(ctx, "CREATE DATABASE "+template+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	e.template = template
	if err := install(ctx, e.dsn(template)); err != nil {
		return fmt.Errorf("migrate template: %w", err)
	}
	return nil
}

func databaseName(kind string) string {
	return "fencectl_test_" + kind + "_" + strings.ToLower(rand.Text()[:10])
}

// install migrates a database as `fencectl migrate` does, and breaks a rule in it where the run asks for that.
func install(ctx context.Context, dsn string) error {
	opened, err := fenceengine.Open(dsn, fenceengine.Options{})
	if err != nil {
		return err
	}
	if _, err := deploy.New(opened).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout}); err != nil {
		return err
	}
	return mutate(ctx, dsn)
}

func (e *postgres) name() string { return e.title }

func (e *postgres) can(need capability) bool {
	switch need {
	case serverLog:
		return e.server != nil
	case snapshots, idleBound, lockHints, looseCommits, namedBlockers, directSessions:
		return true
	}
	return false
}

func (e *postgres) stop(ctx context.Context) error {
	var err error
	for d := e.returned(); d != nil; d = e.returned() {
		err = errors.Join(err, d.drop(ctx))
	}
	if e.admin != nil {
		if e.template != "" {
			_, dropErr := e.admin.Exec(ctx, "DROP DATABASE "+e.template+" WITH (FORCE)")
			err = errors.Join(err, dropErr)
		}
		e.admin.Close()
	}
	if e.server != nil {
		err = errors.Join(err, e.server.Stop(ctx))
	}
	return err
}

func (e *postgres) create(t *testing.T) backend {
	t.Helper()
	d, err := e.copy(t.Context())
	require.NoError(t, err, "create database")
	t.Cleanup(func() { dropped(t, d) })
	return d
}

// lend hands out databases again after it has emptied them: making one takes longer than most behaviours.
func (e *postgres) lend(t *testing.T) backend {
	t.Helper()
	d := e.returned()
	if d == nil {
		var err error
		d, err = e.copy(t.Context())
		require.NoError(t, err, "create database")
	}
	d.logFrom = e.logEnd()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() || d.empty(ctx) != nil {
			dropped(t, d)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.free = append(e.free, d)
	})
	return d
}

// returned takes a database that a test has given back, or nil.
func (e *postgres) returned() *postgresDatabase {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.free) == 0 {
		return nil
	}
	d := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return d
}

func (e *postgres) copy(ctx context.Context) (*postgresDatabase, error) {
	name := databaseName("db")
	if _, err := e.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+e.template); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(e.dsn(name))
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	return &postgresDatabase{engine: e, database: name, pool: pool}, err
}

// postgresDatabase is a migrated database.
type postgresDatabase struct {
	engine   *postgres
	database string
	pool     *pgxpool.Pool // a superuser's connections, beside those of the sessions
	logFrom  int64         // where the server's log stood when the test got the database
}

// empty brings the database back to the state after its migration. What behaviours make for themselves is in
// the schema app.
func (d *postgresDatabase) empty(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `
		SET lock_timeout = '10s';
		DELETE FROM fence.lease;
		DELETE FROM fence.lease_term;
		DELETE FROM fence.intervention;
		DELETE FROM fence.publication;
		DELETE FROM fence.publication_key;
		DELETE FROM fence.late_publication;
		DELETE FROM fence.rejection;
		UPDATE fence.floor SET at_least = 0;
		UPDATE fence.epoch SET epoch = 1, system_identifier = NULL, timeline = NULL;
		DROP SCHEMA IF EXISTS app CASCADE;`)
	return err
}

func (d *postgresDatabase) drop(ctx context.Context) error {
	d.pool.Close()
	_, err := d.engine.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+d.database+" WITH (FORCE)")
	return err
}

func dropped(t *testing.T, d *postgresDatabase) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.drop(ctx); err != nil {
		t.Errorf("drop database: %v", err)
	}
}

func (d *postgresDatabase) connect(ctx context.Context, name string) (connection, error) {
	config, err := pgx.ParseConfig(d.engine.dsn(d.database))
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &postgresConnection{Postgres: procedures.Postgres{DB: conn}, conn: conn}, nil
}

// waits goes by the application's name, which a pooler passes on, and not by the process id.
func (d *postgresDatabase) waits(ctx context.Context, name string) (waits bool, err error) {
	err = d.pool.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM pg_stat_activity
			 WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock')`,
		name).Scan(&waits)
	return waits, err
}

func (d *postgresDatabase) clock(ctx context.Context) (now time.Time, err error) {
	err = d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

func (d *postgresDatabase) shift(ctx context.Context, table, resource string, by time.Duration, columns ...string) error {
	var changes []string
	for _, column := range columns {
		changes = append(changes, fmt.Sprintf("%[1]s = %[1]s - $2 * interval '1 microsecond'", column))
	}
	_, err := d.pool.Exec(ctx,
		fmt.Sprintf("UPDATE fence.%s SET %s WHERE resource = $1", table, strings.Join(changes, ", ")),
		resource, by.Microseconds())
	return err
}

func (d *postgresDatabase) execute(ctx context.Context, statement string, arguments ...any) error {
	_, err := d.pool.Exec(ctx, statement, arguments...)
	return err
}

func (d *postgresDatabase) read(ctx context.Context, row func(scan func(...any) error) error, query string, arguments ...any) error {
	rows, err := d.pool.Query(ctx, query, arguments...)
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

func (d *postgresDatabase) log() (string, error) {
	file, err := os.Open(d.engine.server.LogPath())
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.NewSectionReader(file, d.logFrom, math.MaxInt64-d.logFrom))
	if err != nil {
		return "", err
	}
	var ours strings.Builder
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, "@"+d.database) {
			ours.WriteString(line)
		}
	}
	return ours.String(), nil
}

// logEnd is how long the server's log is now; 0 for a server whose log is not at hand.
func (e *postgres) logEnd() int64 {
	if e.server == nil {
		return 0
	}
	info, err := os.Stat(e.server.LogPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// postgresConnection is one client.
type postgresConnection struct {
	procedures.Postgres
	conn *pgx.Conn
}

func (c *postgresConnection) execute(ctx context.Context, statement string, arguments ...any) error {
	_, err := c.conn.Exec(ctx, statement, arguments...)
	return err
}

// routine leaves the arguments' types to the server, as a client without types would.
func (c *postgresConnection) routine(ctx context.Context, name string, arguments ...any) error {
	var places []string
	for i := range arguments {
		places = append(places, fmt.Sprintf("$%d", i+1))
	}
	return c.execute(ctx, fmt.Sprintf("SELECT FROM fence.%s(%s)", name, strings.Join(places, ", ")), arguments...)
}

func (c *postgresConnection) begin(ctx context.Context, level isolation) error {
	return c.execute(ctx, "BEGIN ISOLATION LEVEL "+string(level))
}

func (c *postgresConnection) commit(ctx context.Context) error   { return c.execute(ctx, "COMMIT") }
func (c *postgresConnection) rollback(ctx context.Context) error { return c.execute(ctx, "ROLLBACK") }

func (c *postgresConnection) savepoint(ctx context.Context, name string) error {
	return c.execute(ctx, "SAVEPOINT "+name)
}

func (c *postgresConnection) rollbackTo(ctx context.Context, name string) error {
	return c.execute(ctx, "ROLLBACK TO SAVEPOINT "+name)
}

func (c *postgresConnection) lockRow(ctx context.Context, table, resource string) error {
	return c.execute(ctx, "SELECT FROM fence."+table+" WHERE resource = $1 FOR UPDATE", resource)
}

func (c *postgresConnection) lockTable(ctx context.Context, table string) error {
	return c.execute(ctx, "LOCK TABLE fence."+table+" IN ACCESS EXCLUSIVE MODE")
}

func (c *postgresConnection) boundLockWaits(ctx context.Context, after time.Duration) error {
	return c.change(ctx, "lock_timeout", fmt.Sprintf("%dms", after.Milliseconds()))
}

func (c *postgresConnection) setting(ctx context.Context, name string) (value string, err error) {
	err = c.conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}

func (c *postgresConnection) change(ctx context.Context, name, value string) error {
	return c.execute(ctx, "SELECT set_config($1, $2, false)", name, value)
}

func (c *postgresConnection) close(ctx context.Context) error { return c.conn.Close(ctx) }
