// Package engine holds what differs between database engines when fencectl deploys: how a connection string
// is read, how a run is locked, what the catalogue says, and how objects, grants and ledger rows are written.
//
// PostgreSQL is the only engine so far. Another one implements [Engine]; internal/deploy knows nothing else.
package engine

// Options of a connection that do not stand in the connection string.
type Options struct {
	// ApplicationName is what pg_stat_activity and lock messages show. Empty: what the connection string
	// says, or else "fencectl".
	ApplicationName string
}

// Engine is one database of one engine.
type Engine interface {
	// Name of the engine, as the routine about gives it, for instance "postgres".
	Name() string
}

// Open reads a connection string and returns its engine, without connecting. postgres:// and postgresql:// URLs
// and key=value strings are PostgreSQL's, and so is an empty one (PGHOST, PGSERVICE and so on); sqlserver:// and
// mssql:// fail with KindNotSupported. An error never contains a password.
func Open(dsn string, options Options) (Engine, error) { panic("not yet") }

// Redact returns the connection string with every password in it replaced.
func Redact(dsn string) string { panic("not yet") }
