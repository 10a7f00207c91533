// Package devdb starts throwaway PostgreSQL servers: for `fencectl demo` and
// `fencectl dev`, and for tests that need a real server, a standby that can be
// promoted, a crash, or a PgBouncer in between.
//
// # Where the server comes from
//
// [StartPostgres] takes the first of these that works:
//
//  1. server binaries on this machine ([Installed]): the ones on PATH, then
//     those in the usual folders of the system, newest first, then those that
//     the environment variable FENCECTL_PG_BINARIES names;
//  2. binaries that an earlier start downloaded, or a download of them
//     (github.com/fergusstrange/embedded-postgres);
//  3. a container, where `docker info` answers.
//
// Otherwise it fails with [ErrNoPostgres], and the message says how to get one.
//
// # What it promises
//
// The server listens on 127.0.0.1 only, on a free port, with a random password
// (SCRAM). All it writes is in one folder named fencectl-pg-<pid>-<random> in
// [os.TempDir]. [Server.Stop], a failed start and a cancelled start leave
// neither a process nor that folder behind.
//
// The server is a child in a process group of its own: a Ctrl-C in the terminal
// reaches the caller, who stops the server cleanly. PostgreSQL refuses to run
// as root, so a root caller runs it as the user postgres, or else nobody.
//
// When the caller is killed without a chance to clean up (kill -9):
//
//   - on Linux the kernel sends the server SIGQUIT (PR_SET_PDEATHSIG), so it
//     ends at once; its folder stays;
//   - elsewhere, and with Docker everywhere, the server stays too.
//
// The next [StartPostgres] on the machine ends and removes such leftovers. It
// knows them by a lock on the file "owner", which the kernel releases with its
// holder: a process id may have been reused, or may belong to a container that
// shares the folder, and would say nothing.
package devdb
