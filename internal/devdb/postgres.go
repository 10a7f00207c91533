package devdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser = "postgres"

	// startTimeout bounds a start whose context has no deadline of its own. A
	// download is not part of it.
	startTimeout = 2 * time.Minute
)

// Server is a throwaway PostgreSQL server. Its methods may be called from
// several goroutines.
type Server struct {
	options  Options
	password string
	port     int
	folder   *folder
	version  string

	mu      sync.Mutex // held while the server starts, stops or is killed
	host    host
	stopped bool
}

// StartPostgres starts a server and returns when it answers. An error, or the
// end of ctx before that, leaves neither process nor folder. The caller stops
// the server with [Server.Stop].
//
// It returns [ErrNoPostgres] when there is no server to start. Other errors end
// with the last lines of the server's log.
func StartPostgres(ctx context.Context, options Options) (*Server, error) {
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	sweep()
	server, err := newFinder().start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return server, nil
}

// start finds a server and starts it.
func (f *finder) start(ctx context.Context, options Options) (*Server, error) {
	found, err := f.find(ctx, options.Version)
	if errors.Is(err, ErrNoPostgres) && !options.LocalOnly {
		var fetchErr error
		if found, fetchErr = f.fetch(ctx, options.Version); fetchErr != nil {
			return f.startContainer(ctx, options, errors.Join(err, fetchErr))
		}
		err = nil
	}
	if errors.Is(err, ErrNoPostgres) {
		return nil, f.explain(ctx, options.Version, err)
	}
	if err != nil {
		return nil, err
	}
	return startLocal(ctx, options, found, f.account)
}

// startLocal initializes and starts a server on this machine.
func startLocal(ctx context.Context, options Options, found Installation, account *account) (*Server, error) {
	folder, err := newFolder(account)
	if err != nil {
		return nil, err
	}
	host := &local{installation: found, account: account, folder: folder}
	s := &Server{options: options, password: newPassword(), folder: folder, host: host}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := host.initialize(ctx, s.password); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	if err := s.startOnPort(ctx, host); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func newPassword() string { return rand.Text() }

// startOnPort starts the server on the port that the options name, or on a free
// one. Another program may take a free port before the server does: then it
// tries the next one.
func (s *Server) startOnPort(ctx context.Context, host *local) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		if err := s.choosePort(); err != nil {
			return err
		}
		if err := host.configure(s.options.Settings, s.port); err != nil {
			return err
		}
		err := s.startHost(ctx)
		if err == nil || s.options.Port != 0 || attempt == attempts || ctx.Err() != nil {
			return err
		}
		if log, _ := os.ReadFile(host.logPath()); !strings.Contains(string(log), "could not bind") {
			return err
		}
		if err := os.Remove(host.logPath()); err != nil {
			return err
		}
	}
}

func (s *Server) choosePort() (err error) {
	if s.port = s.options.Port; s.port == 0 {
		s.port, err = freePort()
	}
	return err
}

// startHost starts the server and waits until it answers.
func (s *Server) startHost(ctx context.Context) error {
	if err := s.host.start(ctx); err != nil {
		return err
	}
	// Another program may hold the port and never answer.
	asking, cancel := whileRunning(ctx, s.host.ended())
	defer cancel()
	for {
		last := s.askVersion(asking)
		if last == nil {
			return nil
		}
		select {
		case <-s.host.ended():
			return fmt.Errorf("server ended before it answered%s", s.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w (last answer: %w)%s", ctx.Err(), last, s.lastLog())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// askVersion connects, and learns the server's exact version the first time.
func (s *Server) askVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.query(ctx, superuser, func(conn *pgx.Conn) error {
		var version string
		if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
			return err
		}
		if s.version == "" { // others may read it by the time of a restart
			s.version, _, _ = strings.Cut(version, " ") // without the distribution's name
		}
		return nil
	})
}

func (s *Server) lastLog() string {
	log, _ := os.ReadFile(s.host.logPath())
	return lastLines(string(log))
}

// query runs f on a connection of its own as superuser.
func (s *Server) query(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.DSN(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// DSN returns a URL for the superuser, with the password: do not log it.
func (s *Server) DSN(database string) string {
	return dsn(s.password, s.port, database)
}

func dsn(password string, port int, database string) string {
	return (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}).String()
}

// String names the server without its password.
func (s *Server) String() string {
	return fmt.Sprintf("postgres %s on 127.0.0.1:%d", s.version, s.port)
}

// GoString is String, so that %#v does not print the password either.
func (s *Server) GoString() string { return s.String() }

// Version returns the server's version, for instance "15.18".
func (s *Server) Version() string { return s.version }

// Port returns the port on 127.0.0.1. It stays the same over a restart.
func (s *Server) Port() int { return s.port }

// Ended is closed when the server has ended, by itself or by [Server.Stop] and
// [Server.Kill]. After a restart, ask again.
func (s *Server) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host.ended()
}

// LogPath returns the path of the server's log. [Server.Stop] removes it.
func (s *Server) LogPath() string { return s.host.logPath() }

// DataDir returns the server's data folder, or "" for a container.
func (s *Server) DataDir() string {
	if l, ok := s.host.(*local); ok {
		return l.dataDir()
	}
	return ""
}

// BinDir returns the folder of the server's binaries, or "" for a container.
func (s *Server) BinDir() string {
	if l, ok := s.host.(*local); ok {
		return l.installation.BinDir
	}
	return ""
}

// SocketDir returns the folder of the server's Unix socket, or "" where it has
// none: on Windows, in a container, or where the path would be too long.
func (s *Server) SocketDir() string {
	if l, ok := s.host.(*local); ok {
		return l.socketDir()
	}
	return ""
}

// CreateDatabase creates a database as a copy of template; an empty template is
// template1. Nobody may be connected to the template meanwhile.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) error {
	statement := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		statement += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	if err := s.execute(ctx, statement); err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// DropDatabase drops a database, and the connections to it, if it exists.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	statement := "DROP DATABASE IF EXISTS " + pgx.Identifier{name}.Sanitize() + " WITH (FORCE)"
	if err := s.execute(ctx, statement); err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

func (s *Server) execute(ctx context.Context, statement string) error {
	return s.query(ctx, superuser, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// Stop shuts the server down (fast: open transactions are rolled back) and
// removes its folder. When ctx ends before the server has, the server is shut
// down immediately instead: Stop never leaves a process behind. A second call
// does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	if err := s.host.stop(ctx); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	if err := errors.Join(s.host.release(), s.folder.remove()); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	s.stopped = true
	return nil
}

// Kill ends the server and all its backends at once, as a crash would (SIGKILL),
// and returns when they are gone. [Server.Restart] recovers what was committed.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("kill postgres: %w", ErrStopped)
	}
	if err := s.host.kill(); err != nil {
		return fmt.Errorf("kill postgres: %w", err)
	}
	return nil
}

// Restart starts the server again on the same port and data, after a fast
// shutdown where it still runs. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("restart postgres: %w", ErrStopped)
	}
	if err := s.host.stop(ctx); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.startHost(ctx); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	return nil
}
