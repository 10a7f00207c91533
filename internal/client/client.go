// Package client connects fencectl's own commands to a database, whatever its engine: a session, the routines on
// it, transactions around them, and reads of the views.
package client

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
)

// application is the name of sessions that have no other.
const application = "fencectl"

// connectTimeout bounds the attempt to connect, unless the connection string has a bound of its own.
const connectTimeout = 10 * time.Second

// Options of a connection that do not stand in the connection string.
type Options struct {
	// Application is the name that the server shows. Empty: what the connection string says, or else fencectl.
	Application string
	// CancelPatience is how long a call whose context has ended waits for the server to say so.
	CancelPatience time.Duration
	// SignIn makes a connector for SQL Server out of a connection string; nil is the driver's own, which knows
	// passwords only.
	SignIn func(dsn string) (driver.Connector, error)
}

// Target is a database that a connection string names. It keeps no connection.
type Target interface {
	// Engine is the engine's name, as the routine about gives it.
	Engine() string
	// Address says, without the password, who connects to what.
	Address() string
	// Connect opens a session.
	Connect(ctx context.Context) (Session, error)
}

// Session is one connection.
type Session interface {
	// Procedures are the routines, each call in a transaction of its own.
	Procedures() procedures.Procedures
	// Begin opens a transaction at READ COMMITTED.
	Begin(ctx context.Context) (Transaction, error)
	// Server says which server this is, and which of its sessions.
	Server() string
	// User and Database that the session works as and in.
	User() string
	Database() string
	// Lost tells whether the connection has ended.
	Lost() bool
	// Close ends the session. It waits for the server no longer than the context lasts.
	Close(ctx context.Context) error

	dialect() dialect
	may(ctx context.Context, right Right) (bool, error)
	installed(ctx context.Context) (bool, error)
	query(ctx context.Context, sql string, args ...any) (rows, error)
}

// Transaction is an open transaction of a session.
type Transaction interface {
	// Procedures are the routines, in this transaction.
	Procedures() procedures.Procedures
	// BoundLockWait bounds each wait for a row that another transaction holds.
	BoundLockWait(ctx context.Context, limit time.Duration) error
	// Delete removes rows of a table of the schema fence, whose owner the user must be.
	Delete(ctx context.Context, table string, where ...Condition) error
	// Commit ends the transaction. Its error may leave open whether it took effect: see [procedures.Classify].
	Commit(ctx context.Context) error
	// Rollback ends it, too. Its failure does not matter: the server rolls back when the connection ends.
	Rollback(ctx context.Context)
}

// UnusableError says why a connection string cannot be used. It never quotes it: a password in a broken string
// cannot be told from the rest.
type UnusableError struct {
	// Reason completes the sentence "the DSN …".
	Reason string
	// Hint says what to do.
	Hint string
}

func (e *UnusableError) Error() string { return "the DSN " + e.Reason }

// Open reads a connection string without connecting. sqlserver:// and mssql:// name SQL Server, anything else
// is PostgreSQL's, an empty one included. Errors are [*UnusableError].
func Open(dsn string, options Options) (Target, error) {
	if ambiguous(dsn) {
		return nil, &UnusableError{
			Reason: "can be read in more than one way",
			Hint:   "percent-encode the password: @ is %40, / is %2F, : is %3A, % is %25",
		}
	}
	if IsSQLServer(dsn) {
		return openSQLServer(dsn, options)
	}
	return openPostgres(dsn, options)
}

// IsSQLServer tells whether a connection string names a SQL Server.
func IsSQLServer(dsn string) bool {
	scheme, _, found := strings.Cut(strings.TrimSpace(dsn), "://")
	return found && (strings.EqualFold(scheme, "sqlserver") || strings.EqualFold(scheme, "mssql"))
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

// fileTrouble names the file that a connection string mentions and that cannot be read.
func fileTrouble(err error) string {
	var file *fs.PathError
	if errors.As(err, &file) {
		return fmt.Sprintf(": %v", file)
	}
	return ""
}
