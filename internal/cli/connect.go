package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	connectTimeout = 10 * time.Second
	// cancelPatience is how long an interrupted call waits for the server to say that it was cancelled. Then
	// the answer is certain: nothing was changed.
	cancelPatience = 2 * time.Second
	// tries of a call whose answer was lost.
	tries = 3
)

// database is the database that a command works on. It connects when it is first used, and again after the
// connection was lost.
type database struct {
	app    *app
	config *pgx.ConnConfig
	conn   *pgx.Conn
}

// withDatabase runs f on the database that the command line, the environment or the configuration names.
func (a *app) withDatabase(ctx context.Context, f func(db *database) error) error {
	_, config, err := a.findDatabase()
	if err != nil {
		return err
	}
	db := &database{app: a, config: config}
	defer db.close(ctx)
	return f(db)
}

// findDatabase returns the connection string that a command works with, also as pgx reads it.
func (a *app) findDatabase() (string, *pgx.ConnConfig, error) {
	dsn, source, err := a.findDSN()
	if err != nil {
		return "", nil, err
	}
	config, err := parseDSN(dsn, source)
	if err != nil {
		return "", nil, err
	}
	a.trace("database %s (from %s)", address(config), source)
	return dsn, config, nil
}

// ambiguous tells whether a URL can be read in more than one way, because its password holds an @ or a / that
// is not percent-encoded. It would be read in the wrong way, and show a piece of the password as a host's name.
func ambiguous(dsn string) bool {
	_, rest, isURL := strings.Cut(dsn, "://")
	if !isURL {
		return false
	}
	at := strings.IndexByte(rest, '@')
	return at >= 0 && (strings.Contains(rest[at+1:], "@") || strings.Contains(rest[:at], "/"))
}

// parseDSN reads a connection string. What pgx says about one that it cannot read quotes it, and a password in
// a broken string cannot be told from the rest: its words are not used.
func parseDSN(dsn, source string) (*pgx.ConnConfig, error) {
	if scheme, _, _ := strings.Cut(dsn, "://"); scheme == "sqlserver" || scheme == "mssql" {
		return nil, usagef("the DSN from %s names a SQL Server, which is not supported yet", source)
	}
	if ambiguous(dsn) {
		return nil, &usageError{
			message: fmt.Sprintf("the DSN from %s can be read in more than one way", source),
			hint:    "percent-encode the password: @ is %40, / is %2F, : is %3A, % is %25",
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, &usageError{
			message: fmt.Sprintf("the DSN from %s cannot be used%s", source, fileTrouble(err)),
			hint: "it is postgres://user:password@host:port/database?..., with special characters of the password " +
				`percent-encoded, or host=... user=... dbname=...; see "fencectl help database"`,
		}
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "fencectl"
	}
	for name := range config.RuntimeParams {
		// Settings of connection pools in Go, which share their DSN with us. The server would refuse them.
		if strings.HasPrefix(name, "pool_") {
			delete(config.RuntimeParams, name)
		}
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// No prepared statements: each is used once, and a pooler may not know them.
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// Ctrl-C and time-outs ask the server to cancel, rather than to leave it working on a dead connection.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelPatience}
	}
	return config, nil
}

// fileTrouble names the file that a DSN mentions and that cannot be read.
func fileTrouble(err error) string {
	var file *fs.PathError
	if errors.As(err, &file) {
		return ": " + file.Error()
	}
	return ""
}

func address(config *pgx.ConnConfig) string {
	return fmt.Sprintf("%s as %s on %s:%d", config.Database, config.User, config.Host, config.Port)
}

func (d *database) connect(ctx context.Context) error {
	if d.conn != nil && !d.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, d.config)
	if err != nil {
		return err
	}
	d.conn = conn
	d.app.trace("connected to server %s, backend %d", conn.PgConn().ParameterStatus("server_version"), conn.PgConn().PID())
	return nil
}

func (d *database) close(ctx context.Context) {
	if d.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	// The work is done and its outcome known: a failing farewell changes nothing.
	_ = d.conn.Close(ctx)
}

// read runs a query or a routine that changes nothing.
func (d *database) read(ctx context.Context, f func(*pgx.Conn) error) error {
	err := d.connect(ctx)
	if err == nil {
		err = f(d.conn)
	}
	if err != nil {
		return &callError{err: err, reading: true}
	}
	return nil
}

// write runs a routine in a transaction of its own. When the answer is lost, or the transaction met another
// one, it makes the same call again: the routines recognise a repeated call.
func (d *database) write(ctx context.Context, f func(procedures.Procedures) error) error {
	return d.writeWithin(ctx, 0, f)
}

// writeWithin is write with a bound for the wait for a row that another transaction holds; 0 is none but the
// command's own.
func (d *database) writeWithin(ctx context.Context, bound time.Duration, f func(procedures.Procedures) error) error {
	unknown := false
	for try := 1; ; try++ {
		err := d.try(ctx, bound, f)
		if err == nil {
			return nil
		}
		failure := procedures.Classify(err)
		unknown = unknown || failure.OutcomeUnknown()
		again := failure.OutcomeUnknown() || failure.Kind == procedures.KindRetry ||
			unknown && failure.Kind == procedures.KindCannotConnect
		if !again || try == tries || ctx.Err() != nil {
			return &callError{err: err, unknown: unknown}
		}
		d.app.note("%s; trying again", serverMessage(err))
		if sleep(ctx, time.Duration(try)*200*time.Millisecond+jitter()) != nil {
			return &callError{err: err, unknown: unknown}
		}
	}
}

// try makes the call once.
func (d *database) try(ctx context.Context, bound time.Duration, f func(procedures.Procedures) error) error {
	if err := d.connect(ctx); err != nil {
		return err
	}
	// Not pgx.BeginFunc: when the answer to COMMIT is lost, it returns the error of its ROLLBACK instead, which
	// says that nothing was sent.
	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := inTransaction(ctx, tx, bound, f); err != nil {
		d.rollback(ctx, tx)
		return err
	}
	return tx.Commit(ctx)
}

func inTransaction(ctx context.Context, tx pgx.Tx, bound time.Duration, f func(procedures.Procedures) error) error {
	if wait := lockWait(ctx, bound); wait > 0 {
		// For this transaction only: behind a pooler, a session's settings are somebody else's next.
		_, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprint(wait.Milliseconds()))
		if err != nil {
			return err
		}
	}
	return f(procedures.Postgres{DB: tx})
}

// rollback ends a failed transaction. It cannot fail in a way that matters: without it the server rolls back
// when the connection ends.
func (d *database) rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// lockWait is how long a call may wait for a row, 0 for any time: within the bound, and most of what is left of
// the command's time, so that the answer "busy" comes before the command's end would leave the outcome in doubt.
func lockWait(ctx context.Context, bound time.Duration) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return bound
	}
	left := max(time.Until(deadline)*8/10, time.Millisecond)
	if bound > 0 {
		left = min(left, bound)
	}
	return left
}

// jitter keeps callers who waited for the same thing from coming back at the same moment.
func jitter() time.Duration { return rand.N(50 * time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
