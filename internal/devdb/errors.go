package devdb

import "errors"

// ErrNoPostgres says that this machine has no PostgreSQL server to start, and
// that none could be downloaded or run in a container. The error that wraps it
// says what was tried and how to get one.
var ErrNoPostgres = errors.New("no postgresql server found")

// ErrNoBabelfish says that this machine has no Babelfish for PostgreSQL to start.
var ErrNoBabelfish = errors.New("no babelfish found")

// ErrNoBasebackup says that no pg_basebackup on this machine can copy the
// server: it must be of the server's major version or newer.
var ErrNoBasebackup = errors.New("no pg_basebackup that can copy this server")

// ErrNoPgbouncer says that pgbouncer is not installed.
var ErrNoPgbouncer = errors.New("no pgbouncer found")

// ErrStopped says that the server was stopped and its folder removed.
var ErrStopped = errors.New("server was stopped")

// ErrContainer says that a server in a container cannot do this: it has no
// folder or binaries on this machine.
var ErrContainer = errors.New("not possible for a server in a container")
