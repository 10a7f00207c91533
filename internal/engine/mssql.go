package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/pressly/goose/v3"

	"github.com/fencectl/fencectl/migrations"
)

type mssql struct {
	connector driver.Connector
	after     func(number int, statement string)
}

func newMSSQL(dsn string, options Options) (*mssql, error) {
	signIn := options.SignIn
	if signIn == nil {
		signIn = func(dsn string) (driver.Connector, error) { return mssqldb.NewConnector(dsn) }
	}
	connector, err := signIn(dsn)
	if err != nil {
		// It has been parsed before: what is wrong with it now is how to sign in, and that quotes no secret.
		return nil, &Error{Kind: KindUsage, Message: "read the connection string", Err: err}
	}
	return &mssql{connector: connector, after: options.AfterStatement}, nil
}

func (m *mssql) Name() string           { return "mssql" }
func (m *mssql) Dialect() goose.Dialect { return goose.DialectMSSQL }
func (m *mssql) Script() Script         { return mssqlScript{} }

func (m *mssql) Migrations() fs.FS {
	files, err := fs.Sub(migrations.MSSQL, "mssql")
	if err != nil {
		// The folder's name is a constant of this build.
		panic(err)
	}
	return files
}

// The relations that the newest migration leaves, in the catalogue's words. A test of internal/deploy compares
// the file with a fresh installation, and writes it anew with -update.
//
//go:embed mssql_objects.json
var mssqlObjects []byte

// Objects implements [Engine].
func (m *mssql) Objects() []Relation {
	var relations []Relation
	if err := json.Unmarshal(mssqlObjects, &relations); err != nil {
		// The file is part of this build.
		panic(fmt.Sprintf("read mssql_objects.json: %v", err))
	}
	return relations
}

// Read implements [Engine]. There are no read-only transactions here: what a Reader sends only reads.
func (m *mssql) Read(ctx context.Context, run func(context.Context, Reader) error) error {
	session, err := m.openSession(ctx)
	if err != nil {
		return mssqlConnectError(ctx, err)
	}
	defer session.close(ctx)
	if err := session.Exec(ctx, mssqlSettings+"SET LOCK_TIMEOUT 10000;"); err != nil {
		return explain(ctx, "prepare the session", err)
	}
	return explain(ctx, "", run(ctx, session))
}

// Write implements [Engine].
func (m *mssql) Write(ctx context.Context, options WriteOptions, run func(context.Context, Writer) error) error {
	session, err := m.openSession(ctx)
	if err != nil {
		return mssqlConnectError(ctx, err)
	}
	// The lock is given back in any case, and last, also when ctx has ended.
	defer session.close(ctx)
	// A migration that waits for a table makes everybody else wait behind it.
	tableWait := max(options.LockTimeout, time.Second)
	if err := session.Exec(ctx, mssqlSettings+fmt.Sprintf("SET LOCK_TIMEOUT %d;", min(tableWait.Milliseconds(), 1<<31-1))); err != nil {
		return explain(ctx, "prepare the session", err)
	}
	if err := session.lock(ctx, options); err != nil {
		return explain(ctx, "take the migration lock", err)
	}
	return explain(ctx, "", run(ctx, session))
}

// mssqlSettings make the session the same whatever the server, the database or the login set for it. A routine
// keeps for ever what ANSI_NULLS and QUOTED_IDENTIFIER were when it was created.
const mssqlSettings = `SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET XACT_ABORT ON;
SET NOCOUNT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
`

// mssqlSession is one connection, and never another one: when it ends, the work has ended too.
type mssqlSession struct {
	db     *sql.DB
	tx     *sql.Tx // the open one, or nil
	locked bool
}

func (m *mssql) openSession(ctx context.Context) (*mssqlSession, error) {
	kept := &keptConnector{Connector: m.connector, after: m.after}
	session := &mssqlSession{db: sql.OpenDB(&singleConnector{Connector: kept})}
	session.db.SetMaxOpenConns(1)
	// Opened now, so that what fails is to connect.
	if err := session.db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, session.db.Close())
	}
	return session, nil
}

// close gives the lock back and ends the session.
func (s *mssqlSession) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if s.locked {
		// If it fails, the end of the session gives it back.
		_ = releaseApplicationLock(ctx, s.db)
	}
	_ = s.db.Close()
}

func (s *mssqlSession) DB() *sql.DB { return s.db }

// ActAs has nothing to do: what is created in a schema belongs to the schema's owner.
func (s *mssqlSession) ActAs(context.Context, string) error { return nil }

// executor is what runs statements: the open transaction, if there is one.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *mssqlSession) executor() executor {
	if s.tx != nil {
		return s.tx
	}
	return s.db
}

// Exec sends the batch as it stands: without parameters the driver adds nothing to it.
func (s *mssqlSession) Exec(ctx context.Context, sql string) error {
	_, err := s.executor().ExecContext(ctx, sql)
	return err
}

func (s *mssqlSession) Number(ctx context.Context, sql string) (int64, error) {
	var number int64
	err := s.executor().QueryRowContext(ctx, sql).Scan(&number)
	return number, err
}

func (s *mssqlSession) Transaction(ctx context.Context, run func(context.Context) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	s.tx = tx
	defer func() { s.tx = nil }()
	if err := run(ctx); err != nil {
		_ = tx.Rollback() // XACT_ABORT may have done it already
		return err
	}
	return tx.Commit()
}
