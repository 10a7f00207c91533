//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// beMain in the environment makes this test binary the program, also where the program runs itself as a worker.
const beMain = "FENCECTL_TEST_BE_MAIN"

// patience is for what takes a moment on an idle machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
	}
	// The tests wait most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// program is a run of fencectl with a folder for temporary files of its own.
type program struct {
	cmd    *exec.Cmd
	tmp    string // also what its descendants have in their environment
	stdout *os.File
	lines  *bufio.Reader
	stderr *output
	ended  chan struct{}
	err    error
}

// output is standard error while it grows.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts fencectl in a process group of its own, as a shell does for the terminal's foreground.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	// Not t.TempDir: the server runs as an unprivileged user when this one is root, and must get in.
	tmp, err := os.MkdirTemp("", "fencectl-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(tmp, 0o755))
	t.Cleanup(func() { os.RemoveAll(tmp) })
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	p := &program{
		cmd: exec.Command(os.Args[0], args...), tmp: tmp, stdout: reader, lines: bufio.NewReader(reader),
		stderr: &output{}, ended: make(chan struct{}),
	}
	p.cmd.Dir = tmp
	p.cmd.Env = append(append(os.Environ(), beMain+"=1", "TMPDIR="+tmp), env...)
	p.cmd.Stdout, p.cmd.Stderr = writer, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = patience
	require.NoError(t, p.cmd.Start())
	require.NoError(t, writer.Close())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		reader.Close()
	})
	return p
}

// run runs fencectl to its end.
func run(t *testing.T, env []string, args ...string) (code int, stdout string, p *program) {
	t.Helper()
	p = start(t, env, args...)
	stdout = p.rest(t)
	return p.wait(t), stdout, p
}

// line reads the next line of standard output.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	require.NoError(t, err, "stderr: %s", p.stderr)
	return strings.TrimSuffix(line, "\n")
}

func (p *program) rest(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	_, err := text.ReadFrom(p.lines)
	require.NoError(t, err)
	return text.String()
}

// ctrlC sends what the terminal sends, to all of the foreground's processes.
func (p *program) ctrlC(t *testing.T) { p.signalGroup(t, syscall.SIGINT) }

func (p *program) signalGroup(t *testing.T, s syscall.Signal) {
	t.Helper()
	// Or it has ended already.
	if err := syscall.Kill(-p.cmd.Process.Pid, s); !errors.Is(err, syscall.ESRCH) {
		require.NoError(t, err)
	}
}

// wait returns the exit code.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("it did not end; stderr: %s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// requireNothingLeft makes sure that neither a descendant of the program nor a file of its is left.
func (p *program) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, p.descendants(t), "stderr: %s", p.stderr)
	entries, err := os.ReadDir(p.tmp)
	require.NoError(t, err)
	require.Empty(t, entries, "stderr: %s", p.stderr)
}

// descendants are the processes that have the program's folder in their environment or on their command line.
func (p *program) descendants(t *testing.T) []string {
	t.Helper()
	found := []string{}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environments {
		folder := filepath.Dir(path)
		environment, _ := os.ReadFile(path) // a process that has ended has none
		arguments, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		if bytes.Contains(environment, []byte(p.tmp)) || bytes.Contains(arguments, []byte(p.tmp)) {
			found = append(found, filepath.Base(folder)+" "+string(bytes.ReplaceAll(arguments, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// eventually waits until it is so.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !isSo(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
