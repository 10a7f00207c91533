package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/fencectl/fencectl/migrations"
)

// cleanupTimeout bounds what is done after the caller's context has ended.
const cleanupTimeout = 5 * time.Second

type postgres struct {
	config *pgx.ConnConfig
}

func newPostgres(config *pgx.ConnConfig, options Options) *postgres {
	// No statement names: a pooler may give the next statement to a server that has never heard of them.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity = 0
	config.DescriptionCacheCapacity = 0
	if options.ApplicationName != "" {
		config.RuntimeParams["application_name"] = options.ApplicationName
	} else if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "fencectl"
	}
	// When the context ends, the server is asked to stop and the session lives on for the clean-up.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cleanupTimeout}
	}
	if options.AfterStatement != nil {
		config.Tracer = &statementCounter{after: options.AfterStatement}
	}
	return &postgres{config: config}
}

// statementCounter calls a function after each statement, those of goose included.
type statementCounter struct {
	count atomic.Int64
	after func(int, string)
}

type statementKey struct{}

func (s *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (s *statementCounter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	statement, _ := ctx.Value(statementKey{}).(string)
	s.after(int(s.count.Add(1)), statement)
}

func (p *postgres) Name() string           { return "postgres" }
func (p *postgres) Dialect() goose.Dialect { return goose.DialectPostgres }
func (p *postgres) Script() Script         { return postgresScript{} }

func (p *postgres) Migrations() fs.FS {
	files, err := fs.Sub(migrations.Postgres, "postgres")
	if err != nil {
		// The folder's name is a constant of this build.
		panic(err)
	}
	return files
}

// Read implements [Engine].
func (p *postgres) Read(ctx context.Context, run func(context.Context, Reader) error) error {
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return connectError(ctx, err)
	}
	defer closeDetached(ctx, conn)
	session := &postgresSession{conn: conn}
	if session.pooler, err = findPooler(ctx, conn, p.config); err != nil {
		return explain(ctx, "look for a pooler", err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return explain(ctx, "begin a read-only transaction", err)
	}
	defer rollbackDetached(ctx, tx)
	// For this transaction only: names with their schema, and times that mean the same to everybody.
	if _, err := conn.Exec(ctx, "SET LOCAL search_path = pg_catalog; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL quote_all_identifiers = off"); err != nil {
		return explain(ctx, "prepare the session", err)
	}
	return explain(ctx, "", run(ctx, session))
}

// Write implements [Engine].
func (p *postgres) Write(ctx context.Context, options WriteOptions, run func(context.Context, Writer) error) (err error) {
	session, err := p.openSession(ctx)
	if err != nil {
		return connectError(ctx, err)
	}
	// The lock is given back in any case, and last, also when ctx has ended.
	defer session.close(ctx)
	pooler, err := findPooler(ctx, session.conn, p.config)
	if err != nil {
		return explain(ctx, "look for a pooler", err)
	}
	session.pooler = pooler
	if pooler == poolerTransaction {
		return &Error{
			Kind:    KindUnfit,
			Message: "there is a connection pooler in transaction mode between fencectl and the server (or one that is too busy to tell): it gives the session, and with it the migration lock, to other clients",
			Hint:    "connect to the server directly (or through a session-mode pool), for this command only",
		}
	}
	if err := session.prepare(ctx, options); err != nil {
		return explain(ctx, "prepare the session", err)
	}
	if err := session.lock(ctx, options); err != nil {
		return explain(ctx, "take the migration lock", err)
	}
	return session.withHolders(ctx, explain(ctx, "", run(ctx, session)))
}

// postgresSession is one connection. It is pgx's and database/sql's at once, so that the session that holds
// the lock is the one that does the work: when it ends, the work has ended too.
type postgresSession struct {
	conn   *pgx.Conn
	db     *sql.DB
	pooler poolerMode
	locked bool
}

// errSessionLost stops database/sql from opening another session, which would work without the lock.
var errSessionLost = errors.New("the session was lost, and with it the migration lock")

// singleConnector gives out one connection only.
type singleConnector struct {
	driver.Connector
	used atomic.Bool
}

func (c *singleConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.used.Swap(true) {
		return nil, errSessionLost
	}
	return c.Connector.Connect(ctx)
}

func (p *postgres) openSession(ctx context.Context) (*postgresSession, error) {
	session := &postgresSession{}
	capture := func(_ context.Context, conn *pgx.Conn) error {
		session.conn = conn
		return nil
	}
	session.db = sql.OpenDB(&singleConnector{
		Connector: stdlib.GetConnector(*p.config.Copy(), stdlib.OptionAfterConnect(capture)),
	})
	session.db.SetMaxOpenConns(1)
	// The first use opens it; giving it back to the pool leaves it to goose.
	conn, err := session.db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, session.db.Close())
	}
	return session, conn.Close()
}

// prepare makes the session the same whatever the server, the database or the role set for it.
func (s *postgresSession) prepare(ctx context.Context, options WriteOptions) error {
	// A migration that waits for a table makes everybody else wait behind it.
	tableWait := max(options.LockTimeout, time.Second)
	_, err := s.conn.Exec(ctx, sessionSettings+fmt.Sprintf(`SET lock_timeout = '%dms';
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET default_transaction_deferrable = off;
-- What is written here must outlive a crash: a floor that is forgotten lets a number be given out twice.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
`, tableWait.Milliseconds()))
	return err
}

// sessionSettings are those that scripts need too: names with their schema, and times that mean the same to
// everybody.
const sessionSettings = `SET search_path = pg_catalog;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SET quote_all_identifiers = off;
SET client_min_messages = warning;
SET check_function_bodies = on;
`

// close gives the lock back and ends the session.
func (s *postgresSession) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if s.locked && !s.conn.IsClosed() {
		// If it fails, the end of the session gives it back.
		_, _ = s.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", migrationLock)
	}
	_ = s.db.Close()
}

func (s *postgresSession) DB() *sql.DB { return s.db }

func (s *postgresSession) ActAs(ctx context.Context, role string) error {
	return s.Exec(ctx, "SET ROLE "+pgx.Identifier{role}.Sanitize())
}

// Exec sends the batch with the simple protocol, as it stands.
func (s *postgresSession) Exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

func (s *postgresSession) Number(ctx context.Context, sql string) (int64, error) {
	var number int64
	err := s.conn.QueryRow(ctx, sql).Scan(&number)
	return number, err
}

func (s *postgresSession) Transaction(ctx context.Context, run func(context.Context) error) error {
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer rollbackDetached(ctx, tx)
	if err := run(ctx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func rollbackDetached(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func closeDetached(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// savepoint runs a query that may fail, and leaves the transaction usable when it does.
func savepoint(ctx context.Context, conn *pgx.Conn, run func() error) error {
	if _, err := conn.Exec(ctx, "SAVEPOINT attempt"); err != nil {
		return err
	}
	failed := run()
	end := "RELEASE SAVEPOINT attempt"
	if failed != nil {
		end = "ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt"
	}
	if _, err := conn.Exec(context.WithoutCancel(ctx), end); err != nil {
		return errors.Join(failed, err)
	}
	return failed
}
