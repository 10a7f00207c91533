package devdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// host is where a server runs: a process on this machine, or a container.
type host interface {
	start(ctx context.Context) error // does not wait until the server answers
	ended() <-chan struct{}          // closed when the server that start began has ended
	stop(ctx context.Context) error  // a fast shutdown; leaves nothing running
	kill() error                     // a crash
	release() error                  // gives back what is left outside of the folder
	logPath() string
}

// local is a server that runs as a process on this machine.
type local struct {
	installation Installation
	account      *account
	folder       *folder
	proc         *process
}

func (l *local) dataDir() string { return l.folder.join("data") }
func (l *local) logPath() string { return l.folder.join(logFile) }

func (l *local) ended() <-chan struct{} { return l.proc.done }

// socketDir is the server's folder, or empty where a socket in it would have a
// longer name than a socket may have.
func (l *local) socketDir() string {
	const longest = 103
	if runtime.GOOS == "windows" || len(l.folder.join(".s.PGSQL.65535")) > longest {
		return ""
	}
	return l.folder.path
}

// initialize makes the data folder.
func (l *local) initialize(ctx context.Context, password string) error {
	passwordFile, err := l.folder.writeFor(l.account, "password", password)
	if err != nil {
		return fmt.Errorf("write password file: %w", err)
	}
	defer os.Remove(passwordFile)
	out, err := l.initdb(ctx, passwordFile, "C.UTF-8")
	if err != nil && strings.Contains(out, "invalid locale") {
		_, err = l.initdb(ctx, passwordFile, "C")
	}
	return err
}

func (l *local) initdb(ctx context.Context, passwordFile, locale string) (string, error) {
	return l.run(ctx, l.installation.program("initdb"), nil,
		"--pgdata", l.dataDir(), "--username", superuser, "--auth", "scram-sha-256",
		"--pwfile", passwordFile, "--encoding", "UTF8", "--locale", locale,
		"--no-sync", "--no-instructions")
}

// configure writes the server's configuration, which replaces an earlier one.
func (l *local) configure(settings map[string]string, port int) error {
	const ours = "fencectl.conf"
	content := configuration(settings, port, l.socketDir())
	if _, err := l.folder.writeFor(l.account, filepath.Join("data", ours), content); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	main := filepath.Join(l.dataDir(), "postgresql.conf")
	before, err := os.ReadFile(main)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	include := "\ninclude '" + ours + "'\n"
	if strings.HasSuffix(string(before), include) {
		return nil
	}
	return os.WriteFile(main, append(before, include...), 0o600)
}

func (l *local) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	log, err := os.OpenFile(l.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open server log: %w", err)
	}
	defer log.Close()
	cmd := l.command(l.installation.program("postgres"), "-D", l.dataDir())
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := l.launchServer(cmd)
	if err != nil {
		return fmt.Errorf("run postgres: %w", err)
	}
	l.proc = proc
	return l.folder.notePid(proc.pid)
}

func (l *local) stop(ctx context.Context) error {
	if l.proc == nil {
		return nil
	}
	return l.proc.end(ctx, 30*time.Second,
		func() error { return l.shutdown(true) },
		func() error { return l.shutdown(false) })
}

func (l *local) kill() error {
	if l.proc == nil {
		return nil
	}
	return l.proc.kill()
}

func (l *local) release() error {
	releaseSharedMemory(l.dataDir())
	return nil
}

// run runs a program of PostgreSQL to its end and returns what it prints, which
// is also in the error.
func (l *local) run(ctx context.Context, program string, env []string, args ...string) (string, error) {
	name := filepath.Base(program)
	out, err := os.Create(l.folder.join(name + ".log"))
	if err != nil {
		return "", fmt.Errorf("run %s: %w", name, err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := l.command(program, args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = out, out
	err = run(ctx, cmd)
	printed, _ := os.ReadFile(out.Name())
	if err != nil {
		return string(printed), fmt.Errorf("run %s: %w%s", name, err, lastLines(string(printed)))
	}
	return string(printed), nil
}

// command runs in the server's folder, which the account can enter, and without
// the caller's PG* variables, which would point the programs elsewhere.
func (l *local) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = l.folder.path
	cmd.Env = environment()
	cmd.SysProcAttr = l.account.attributes()
	return cmd
}

func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && name != "LANG" && name != "LANGUAGE" {
			env = append(env, variable)
		}
	}
	return append(env, "LC_ALL=C")
}

// freePort returns a port that nothing listens on at the moment.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, errors.Join(listener.Close())
}

// lastLines returns the end of a log, for an error message.
func lastLines(log string) string {
	const most = 12
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return ""
	}
	return "\n" + strings.Join(lines[max(0, len(lines)-most):], "\n")
}
