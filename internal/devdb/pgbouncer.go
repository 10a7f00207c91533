package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PoolMode is when PgBouncer gives a server connection back to its pool.
type PoolMode string

// The pool modes of PgBouncer.
const (
	SessionPooling     PoolMode = "session"     // when the client leaves
	TransactionPooling PoolMode = "transaction" // at the end of each transaction
	StatementPooling   PoolMode = "statement"   // after each statement; no transactions
)

// Pgbouncer is a throwaway PgBouncer in front of a [Server].
type Pgbouncer struct {
	version  string
	port     int
	password string
	account  *account
	folder   *folder
	proc     *process
}

// StartPgbouncer starts a PgBouncer that lets every role of the server log in,
// and returns when it answers. It is stopped with [Pgbouncer.Stop], before or
// after the server. It returns [ErrNoPgbouncer] when the program is missing.
//
// Only PgBouncer 1.21 and newer follow prepared statements from one server
// connection to the next: with an older one a pgx client must set
// default_query_exec_mode (see [Pgbouncer.PreparedStatements]).
func StartPgbouncer(ctx context.Context, server *Server, mode PoolMode) (*Pgbouncer, error) {
	b := &Pgbouncer{password: server.password, account: unprivileged()}
	program, err := b.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	sweep()
	if b.folder, err = newFolder(b.account); err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.startOnPort(ctx, program, server.port, mode); err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", errors.Join(err, b.Stop(ctx)))
	}
	return b, nil
}

// find returns the program and learns its version.
func (b *Pgbouncer) find(ctx context.Context) (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := b.account.output(ctx, program, "--version")
		if err != nil {
			return "", fmt.Errorf("run %s --version: %w%s", program, err, lastLines(out))
		}
		match := regexp.MustCompile(`(?i)pgbouncer (?:version )?(\d+\.\d+\S*)`).FindStringSubmatch(out)
		if match == nil {
			return "", fmt.Errorf("run %s --version: unknown answer %q", program, out)
		}
		b.version = match[1]
		return program, nil
	}
	return "", ErrNoPgbouncer
}

// startOnPort starts PgBouncer on a free port, and on another one when some
// other program was faster.
func (b *Pgbouncer) startOnPort(ctx context.Context, program string, serverPort int, mode PoolMode) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		b.port = port
		err = b.start(ctx, program, serverPort, mode)
		taken := strings.Contains(strings.ToLower(b.lastLog()), "address already in use")
		if err == nil || !taken || attempt == attempts || ctx.Err() != nil {
			return err
		}
		if err := b.end(ctx); err != nil {
			return err
		}
	}
}

func (b *Pgbouncer) start(ctx context.Context, program string, serverPort int, mode PoolMode) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// One list serves both sides: SCRAM towards the server needs the password itself.
	users, err := b.folder.writeFor(b.account, "users.txt", fmt.Sprintf("%q %q\n", superuser, b.password))
	if err != nil {
		return err
	}
	config, err := b.folder.writeFor(b.account, "pgbouncer.ini", b.configuration(serverPort, mode, users))
	if err != nil {
		return err
	}
	log, err := os.Create(b.LogPath())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, config)
	cmd.Dir = b.folder.path
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = b.account.attributes()
	if b.proc, err = launch(cmd); err != nil {
		return fmt.Errorf("run pgbouncer: %w", err)
	}
	if err := b.folder.notePid(b.proc.pid); err != nil {
		return err
	}
	return b.waitReady(ctx)
}

// configuration looks roles up in the server (auth_user), so that every role can
// log in with its own password.
func (b *Pgbouncer) configuration(serverPort int, mode PoolMode, users string) string {
	lines := []string{
		"[databases]",
		fmt.Sprintf("* = host=127.0.0.1 port=%d", serverPort),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(b.port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + users,
		"auth_user = " + superuser,
		"admin_users = " + superuser,
		"pool_mode = " + string(mode),
		"max_client_conn = 1000",
		"default_pool_size = 50",
		"ignore_startup_parameters = extra_float_digits,options",
	}
	if b.PreparedStatements() {
		lines = append(lines, "max_prepared_statements = 200")
	}
	return strings.Join(lines, "\n") + "\n"
}

// waitReady waits until a query gets through to the server.
func (b *Pgbouncer) waitReady(ctx context.Context) error {
	asking, cancel := whileRunning(ctx, b.proc.done)
	defer cancel()
	for {
		last := b.ping(asking)
		if last == nil {
			return nil
		}
		select {
		case <-b.proc.done:
			return fmt.Errorf("pgbouncer ended before it answered%s", b.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("wait for pgbouncer: %w (last answer: %w)%s", ctx.Err(), last, b.lastLog())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func (b *Pgbouncer) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, b.DSN(superuser))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Ping(ctx)
}

// PreparedStatements tells whether this PgBouncer supports prepared statements
// in transaction mode.
func (b *Pgbouncer) PreparedStatements() bool { return b.atLeast(1, 21) }

func (b *Pgbouncer) atLeast(major, minor int) bool {
	parts := strings.SplitN(b.version, ".", 3)
	haveMajor, _ := strconv.Atoi(parts[0])
	haveMinor, _ := strconv.Atoi(parts[1]) // find accepts no version without it
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}

// DSN returns a URL for the superuser, with the password: do not log it. The
// database "pgbouncer" is PgBouncer's console.
func (b *Pgbouncer) DSN(database string) string { return dsn(b.password, b.port, database) }

// String names the PgBouncer without its password.
func (b *Pgbouncer) String() string {
	return fmt.Sprintf("pgbouncer %s on 127.0.0.1:%d", b.version, b.port)
}

// GoString is String, so that %#v does not print the password either.
func (b *Pgbouncer) GoString() string { return b.String() }

// Version returns PgBouncer's version, for instance "1.18.0".
func (b *Pgbouncer) Version() string { return b.version }

// Port returns the port on 127.0.0.1.
func (b *Pgbouncer) Port() int { return b.port }

// LogPath returns the path of PgBouncer's log. [Pgbouncer.Stop] removes it.
func (b *Pgbouncer) LogPath() string { return filepath.Join(b.folder.path, logFile) }

func (b *Pgbouncer) lastLog() string {
	log, _ := os.ReadFile(b.LogPath())
	return lastLines(string(log))
}

// Stop ends PgBouncer without waiting for its clients, and removes its folder.
// A second call does nothing.
func (b *Pgbouncer) Stop(ctx context.Context) error {
	if err := errors.Join(b.end(ctx), b.folder.remove()); err != nil {
		return fmt.Errorf("stop pgbouncer: %w", err)
	}
	return nil
}

// end sends the signal that means "at once": SIGTERM, which since 1.23 waits
// for the clients, and SIGQUIT from then on.
func (b *Pgbouncer) end(ctx context.Context) error {
	if b.proc == nil {
		return nil
	}
	now := syscall.SIGTERM
	if b.atLeast(1, 23) {
		now = syscall.SIGQUIT
	}
	return b.proc.end(ctx, 5*time.Second, func() error { return signal(b.proc.pid, now) }, b.proc.kill)
}
