// Package engine holds what differs between database engines when fencectl deploys: how a connection string
// is read, how a run is locked, what the catalogue says, and how objects, grants and ledger rows are written.
//
// Each engine implements [Engine]; internal/deploy knows nothing else.
package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

// Options of a connection that do not stand in the connection string.
type Options struct {
	// ApplicationName is what pg_stat_activity and lock messages show. Empty: what the connection string
	// says, or else "fencectl".
	ApplicationName string
	// AfterStatement is called after each statement that was sent to the server, with its number, from 1;
	// may be nil. Tests end the program there.
	AfterStatement func(number int, statement string)
	// SignIn makes a connector for SQL Server out of a connection string; nil is the driver's own, which knows
	// passwords only.
	SignIn func(dsn string) (driver.Connector, error)
}

// Engine is one database of one engine. It keeps no connection.
type Engine interface {
	// Name of the engine, as the routine about gives it, for instance "postgres".
	Name() string
	// Dialect is goose's name of it.
	Dialect() goose.Dialect
	// Migrations are the versioned migrations, at the root of the file system.
	Migrations() fs.FS
	// Objects are the tables, views and sequences that the newest migration leaves.
	Objects() []Relation
	// Read connects and runs the function in a read-only transaction. It changes nothing in the session, so
	// that it also works where a pooler shares it with others.
	Read(ctx context.Context, run func(context.Context, Reader) error) error
	// Write connects, takes the migration lock of the database and runs the function. It gives the lock back
	// however the function ends. It fails through a pooler that shares sessions between clients: the lock
	// would be somebody else's.
	Write(ctx context.Context, options WriteOptions, run func(context.Context, Writer) error) error
	// Script writes the statements that deployments consist of.
	Script() Script
	// CheckServer refuses a server or a database that cannot carry a fence, with an [*Error] of kind unfit.
	CheckServer(c *Catalogue) error
	// ServerFindings judges the same for a report.
	ServerFindings(c *Catalogue) []Finding
}

// Reader looks at a database without changing it.
type Reader interface {
	// Catalogue reads all that a deployment depends on.
	Catalogue(ctx context.Context, timeline Timeline) (*Catalogue, error)
	// Health judges whether the database is fit, but for what the catalogue tells.
	Health(ctx context.Context) ([]Finding, error)
}

// Timeline says which form of the routine timeline should be there.
type Timeline int

// Forms of the routine timeline.
const (
	// TimelineInstalled: the one that is installed; where there is none, the one that works.
	TimelineInstalled Timeline = iota
	// TimelineProbed: the one that works for the owner of the schema.
	TimelineProbed
)

// WriteOptions say how to wait for the migration lock.
type WriteOptions struct {
	// LockTimeout bounds the wait; 0 tries once. It also bounds each wait for a table, to a second at least.
	LockTimeout time.Duration
	// Waiting is called when the lock is found taken; may be nil.
	Waiting func([]Holder)
}

// Writer changes a database, in a session that holds the migration lock.
type Writer interface {
	Reader
	// ActAs makes what follows the work of that role, so that all objects have one owner.
	ActAs(ctx context.Context, role string) error
	// Exec runs a batch of statements as it stands, byte for byte.
	Exec(ctx context.Context, sql string) error
	// Number runs a query that gives one integer.
	Number(ctx context.Context, sql string) (int64, error)
	// Transaction runs the function in a transaction, and rolls it back if the function fails.
	Transaction(ctx context.Context, run func(context.Context) error) error
	// DB is the same session for database/sql. It never has a second connection.
	DB() *sql.DB
}
