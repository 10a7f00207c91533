package engine

import (
	"context"
	"database/sql/driver"
	"sync/atomic"

	mssqldb "github.com/microsoft/go-mssqldb"
)

// keptConnector makes connections whose session database/sql does not reset between two uses: a reset gives
// back the application lock, and forgets the settings. It also counts statements, for tests.
type keptConnector struct {
	driver.Connector
	after func(number int, statement string)
}

func (c *keptConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	known, ok := conn.(*mssqldb.Conn)
	if !ok {
		return conn, nil
	}
	return &keptConn{Conn: known, after: c.after}, nil
}

type keptConn struct {
	*mssqldb.Conn
	count atomic.Int64
	after func(number int, statement string)
}

// ResetSession implements [driver.SessionResetter]: it leaves the session as it is.
func (*keptConn) ResetSession(context.Context) error { return nil }

func (c *keptConn) sent(statement string) {
	if c.after != nil {
		c.after(int(c.count.Add(1)), statement)
	}
}

// Prepare implements [driver.Conn].
func (c *keptConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements [driver.ConnPrepareContext]. The driver prepares nothing: it remembers the text.
func (c *keptConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.PrepareContext(ctx, query)
	if err != nil || c.after == nil {
		return stmt, err
	}
	return &countedStmt{Stmt: stmt.(*mssqldb.Stmt), conn: c, query: query}, nil
}

// BeginTx implements [driver.ConnBeginTx].
func (c *keptConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.BeginTx(ctx, options)
	if err != nil || c.after == nil {
		return tx, err
	}
	c.sent("BEGIN TRANSACTION")
	return countedTx{tx, c}, nil
}

type countedStmt struct {
	*mssqldb.Stmt
	conn  *keptConn
	query string
}

func (s *countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.conn.sent(s.query)
	return s.Stmt.ExecContext(ctx, args)
}

func (s *countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	defer s.conn.sent(s.query)
	return s.Stmt.QueryContext(ctx, args)
}

type countedTx struct {
	driver.Tx
	conn *keptConn
}

func (t countedTx) Commit() error {
	defer t.conn.sent("COMMIT")
	return t.Tx.Commit()
}
