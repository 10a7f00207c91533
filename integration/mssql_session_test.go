package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/fencectl/fencectl/internal/procedures"
)

// sqlServerConnection is one client.
type sqlServerConnection struct {
	db    *sqlServerDatabase
	conn  *sql.Conn
	name  string
	calls procedures.SQLServer
	open  bool      // a transaction that began here has not been ended here
	aside *pgx.Conn // holds the tables that the transaction locks, where T-SQL cannot
}

func newSQLServerConnection(db *sqlServerDatabase, conn *sql.Conn, name string) *sqlServerConnection {
	return &sqlServerConnection{db: db, conn: conn, name: name, calls: procedures.SQLServer{DB: conn}}
}

// native gives an error of Babelfish the number that SQL Server has for it. It has one number for everything
// that it does not translate, so that here, where the server's language is known, the text has to tell.
func (c *sqlServerConnection) native(err error) error {
	var server mssql.Error
	if !errors.As(err, &server) || server.Number != 33557097 {
		return err
	}
	for text, number := range map[string]int32{
		"canceling statement due to lock timeout": 1222,
		"could not serialize access":              3960,
		"deadlock detected":                       1205,
	} {
		if strings.Contains(server.Message, text) {
			server.Number, server.All = number, nil
			return server
		}
	}
	return err
}

// inTransaction makes a call in the session's transaction, or else in one of its own: check and require
// refuse to be called without.
func (c *sqlServerConnection) inTransaction(ctx context.Context, call func() error) error {
	if c.open {
		return c.native(call())
	}
	if err := c.begin(ctx, readCommitted); err != nil {
		return err
	}
	if err := call(); err != nil {
		return errors.Join(c.native(err), c.rollback(ctx))
	}
	return c.commit(ctx)
}

func (c *sqlServerConnection) Acquire(ctx context.Context, p procedures.AcquireParams) (procedures.AcquireResult, error) {
	got, err := c.calls.Acquire(ctx, p)
	return got, c.native(err)
}

func (c *sqlServerConnection) Renew(ctx context.Context, t procedures.Token, ttlMS int64) (procedures.RenewResult, error) {
	got, err := c.calls.Renew(ctx, t, ttlMS)
	return got, c.native(err)
}

func (c *sqlServerConnection) Release(ctx context.Context, t procedures.Token) (procedures.ReleaseResult, error) {
	got, err := c.calls.Release(ctx, t)
	return got, c.native(err)
}

func (c *sqlServerConnection) Publish(ctx context.Context, p procedures.PublishParams) (procedures.PublishResult, error) {
	got, err := c.calls.Publish(ctx, p)
	return got, c.native(err)
}

func (c *sqlServerConnection) Check(ctx context.Context, t procedures.Token, policy string) (got procedures.CheckResult, err error) {
	err = c.inTransaction(ctx, func() error {
		got, err = c.calls.Check(ctx, t, policy)
		return err
	})
	return got, err
}

func (c *sqlServerConnection) Require(ctx context.Context, t procedures.Token, policy string) (got procedures.CheckResult, err error) {
	err = c.inTransaction(ctx, func() error {
		got, err = c.calls.Require(ctx, t, policy)
		return err
	})
	return got, err
}

func (c *sqlServerConnection) Diagnose(ctx context.Context, t procedures.Token, at *time.Time, policy string) (procedures.DiagnoseResult, error) {
	got, err := c.calls.Diagnose(ctx, t, at, policy)
	return got, c.native(err)
}

func (c *sqlServerConnection) Seize(ctx context.Context, p procedures.InterveneParams) (procedures.SeizeResult, error) {
	got, err := c.calls.Seize(ctx, p)
	return got, c.native(err)
}

func (c *sqlServerConnection) RaiseFloor(ctx context.Context, resource *string, atLeast int64) (procedures.RaiseFloorResult, error) {
	got, err := c.calls.RaiseFloor(ctx, resource, atLeast)
	return got, c.native(err)
}

func (c *sqlServerConnection) Remove(ctx context.Context, p procedures.InterveneParams) (procedures.RemoveResult, error) {
	got, err := c.calls.Remove(ctx, p)
	return got, c.native(err)
}

func (c *sqlServerConnection) Prune(ctx context.Context, olderThanMS int64, batch int32) ([]procedures.PruneResult, error) {
	got, err := c.calls.Prune(ctx, olderThanMS, batch)
	return got, c.native(err)
}

func (c *sqlServerConnection) About(ctx context.Context) (procedures.AboutResult, error) {
	got, err := c.calls.About(ctx)
	return got, c.native(err)
}

// routine writes NULL as such: the driver has no type for it.
func (c *sqlServerConnection) routine(ctx context.Context, name string, arguments ...any) error {
	var places []string
	var values []any
	for _, argument := range arguments {
		if argument == nil {
			places = append(places, "NULL")
			continue
		}
		values = append(values, argument)
		places = append(places, fmt.Sprintf("@p%d", len(values)))
	}
	call := func() error {
		return c.execute(ctx, fmt.Sprintf("EXEC fence.[%s] %s", name, strings.Join(places, ", ")), values...)
	}
	if name == "check" || name == "require" {
		return c.inTransaction(ctx, call)
	}
	return call()
}

func (c *sqlServerConnection) execute(ctx context.Context, statement string, arguments ...any) error {
	_, err := c.conn.ExecContext(ctx, inTSQL(statement), typed(arguments)...)
	return c.native(err)
}

func (c *sqlServerConnection) begin(ctx context.Context, level isolation) error {
	if err := c.execute(ctx, "SET TRANSACTION ISOLATION LEVEL "+string(level)); err != nil {
		return err
	}
	c.open = true
	return c.execute(ctx, "BEGIN TRANSACTION")
}

func (c *sqlServerConnection) commit(ctx context.Context) error {
	return c.end(ctx, "COMMIT TRANSACTION")
}

// rollback has nothing left to do after an error that has rolled the transaction back.
func (c *sqlServerConnection) rollback(ctx context.Context) error {
	return c.end(ctx, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")
}

func (c *sqlServerConnection) end(ctx context.Context, statement string) error {
	c.open = false
	err := c.execute(ctx, statement)
	if c.aside != nil {
		_, asideErr := c.aside.Exec(ctx, "ROLLBACK")
		err = errors.Join(err, asideErr)
	}
	return errors.Join(err, c.execute(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
}

func (c *sqlServerConnection) savepoint(ctx context.Context, name string) error {
	return c.execute(ctx, "SAVE TRANSACTION "+name)
}

func (c *sqlServerConnection) rollbackTo(ctx context.Context, name string) error {
	return c.execute(ctx, "ROLLBACK TRANSACTION "+name)
}

// lockRow keeps writers away, and not readers. Babelfish forgets the hint, and no reader waits there.
func (c *sqlServerConnection) lockRow(ctx context.Context, table, resource string) error {
	if c.db.engine.babelfish == nil {
		return c.execute(ctx, "SELECT COUNT(*) FROM fence."+table+" WITH (UPDLOCK, ROWLOCK) WHERE resource = @p1", resource)
	}
	return c.execute(ctx, "UPDATE fence."+table+" SET resource = resource WHERE resource = @p1", resource)
}

func (c *sqlServerConnection) lockTable(ctx context.Context, table string) error {
	server := c.db.engine.babelfish
	if server == nil {
		return c.execute(ctx, "SELECT TOP (0) 1 FROM fence."+table+" WITH (TABLOCKX, HOLDLOCK)")
	}
	if c.aside == nil {
		var err error
		if c.aside, err = pgx.Connect(ctx, server.PostgresDSN()); err != nil {
			return err
		}
		c.db.belongs(c.name, int32(c.aside.PgConn().PID()))
	}
	if c.aside.PgConn().TxStatus() == 'I' {
		if _, err := c.aside.Exec(ctx, "BEGIN"); err != nil {
			return err
		}
	}
	// A T-SQL database is a schema prefix here.
	_, err := c.aside.Exec(ctx, "LOCK TABLE "+pgx.Identifier{c.db.database + "_fence", table}.Sanitize()+" IN ACCESS EXCLUSIVE MODE")
	return err
}

func (c *sqlServerConnection) boundLockWaits(ctx context.Context, after time.Duration) error {
	return c.execute(ctx, fmt.Sprintf("SET LOCK_TIMEOUT %d", after.Milliseconds()))
}

// setting knows the one setting of PostgreSQL's that has a counterpart.
func (c *sqlServerConnection) setting(ctx context.Context, name string) (string, error) {
	if name != "lock_timeout" {
		return "", fmt.Errorf("there is no setting %q", name)
	}
	var ms int64
	if err := c.conn.QueryRowContext(ctx, "SELECT @@LOCK_TIMEOUT").Scan(&ms); err != nil {
		return "", err
	}
	if ms%int64(time.Hour/time.Millisecond) == 0 {
		return fmt.Sprintf("%dh", ms/int64(time.Hour/time.Millisecond)), nil
	}
	return fmt.Sprintf("%dms", ms), nil
}

func (c *sqlServerConnection) change(ctx context.Context, name, value string) error {
	after, err := time.ParseDuration(value)
	if name != "lock_timeout" || err != nil {
		return fmt.Errorf("there is no setting %q of %q", name, value)
	}
	return c.boundLockWaits(ctx, after)
}

// close gives the connection back as a new one would be: the next session gets it.
func (c *sqlServerConnection) close(ctx context.Context) error {
	err := c.rollback(ctx)
	if c.aside != nil {
		err = errors.Join(err, c.aside.Close(ctx))
	}
	err = errors.Join(err, c.execute(ctx, "SET LOCK_TIMEOUT -1"))
	if err != nil {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // it is not to be used again
	}
	return errors.Join(err, c.conn.Close())
}
