package integration

import (
	"context"
	"testing"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
)

// engine is one product at one version, ready to hand out migrated databases.
type engine interface {
	// name is the product and its full version, as the summary shows it.
	name() string
	// can tells whether the engine, as it runs here, has a capability.
	can(capability) bool
	// create makes a migrated database, which is dropped when the test ends: for tests that change more
	// than rows.
	create(t *testing.T) backend
	// lend gives the test a migrated and empty database of its own, which other tests may have had before.
	lend(t *testing.T) backend
	// stop ends what was started for the run.
	stop(ctx context.Context) error
}

// capability is something that a behaviour needs and that not every engine, or not every way to run it, has.
type capability string

const (
	// serverLog: the test can read what the server logged.
	serverLog capability = "the server's log"
	// snapshots: isolation levels above READ COMMITTED read an old snapshot instead of blocking.
	snapshots capability = "snapshot isolation"
	// idleBound: the engine ends a transaction whose client has stalled.
	idleBound capability = "idle-in-transaction timeout"
	// lockHints: a statement can say how it locks: rows that are locked are passed over, a row is locked shared.
	lockHints capability = "lock hints"
	// looseCommits: a session may choose not to wait until its commits are durable.
	looseCommits capability = "commits that are not durable"
	// namedBlockers: the status of a lease names the session that holds its row.
	namedBlockers capability = "the locker of a row"
	// directSessions: a session is one server connection, which keeps its settings between transactions.
	directSessions capability = "sessions without a pooler"
)

// backend is one database of an engine: how to connect to it, and how to do there what engines do
// differently. Its statements run in a session of their own that may do anything.
type backend interface {
	// connect opens a connection that the server knows by the given name.
	connect(ctx context.Context, name string) (connection, error)
	// waits tells whether the session of that name waits for a lock.
	waits(ctx context.Context, name string) (bool, error)
	// clock reads the database's clock.
	clock(ctx context.Context) (time.Time, error)
	// shift moves times of a resource's rows into the past. Columns that are NULL stay NULL.
	shift(ctx context.Context, table, resource string, by time.Duration, columns ...string) error
	// execute runs a statement that all engines understand; parameters are $1, $2, …
	execute(ctx context.Context, statement string, arguments ...any) error
	// read runs a query that all engines understand and hands each row's scan function to row.
	read(ctx context.Context, row func(scan func(...any) error) error, query string, arguments ...any) error
	// log returns what the server logged about this database so far. It needs serverLog.
	log() (string, error)
}

// connection is one client of the database.
type connection interface {
	procedures.Procedures
	// routine calls a routine with the arguments as they are, NULL included, and ignores its answer.
	routine(ctx context.Context, name string, arguments ...any) error
	// execute runs a statement that all engines understand; parameters are $1, $2, …
	execute(ctx context.Context, statement string, arguments ...any) error
	begin(ctx context.Context, level isolation) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
	savepoint(ctx context.Context, name string) error
	rollbackTo(ctx context.Context, name string) error
	// lockRow locks a resource's row of a table until the transaction ends, and changes nothing.
	lockRow(ctx context.Context, table, resource string) error
	// lockTable locks a whole table until the transaction ends, even for readers.
	lockTable(ctx context.Context, table string) error
	// boundLockWaits makes later waits for locks fail after a while.
	boundLockWaits(ctx context.Context, after time.Duration) error
	// setting reads a setting of the session; change sets it for the session.
	setting(ctx context.Context, name string) (string, error)
	change(ctx context.Context, name, value string) error
	close(ctx context.Context) error
}

// isolation is a transaction's isolation level.
type isolation string

const (
	readCommitted  isolation = "READ COMMITTED"
	repeatableRead isolation = "REPEATABLE READ"
	serializable   isolation = "SERIALIZABLE"
)
