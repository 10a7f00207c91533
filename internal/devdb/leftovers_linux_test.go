package devdb

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// parentVariable makes this test program the one that gets killed.
const parentVariable = "DEVDB_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		beParent()
	}
	os.Exit(m.Run())
}

// beParent starts a server and a PgBouncer, prints their processes and folders,
// and waits to be killed.
func beParent() {
	server, err := StartPostgres(context.Background(), Options{Settings: TestSettings(), LocalOnly: true})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("server", server.host.(*local).proc.pid, server.folder.path)
	if bouncer, err := StartPgbouncer(context.Background(), server, TransactionPooling); err == nil {
		fmt.Println("pgbouncer", bouncer.proc.pid, bouncer.folder.path)
	}
	fmt.Println("ready")
	select {}
}

func TestServerEndsWhenItsParentIsKilled(t *testing.T) {
	startServer(t, Options{Settings: TestSettings()}) // skips where there is none
	dir := ownTempDir(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		fields := strings.Fields(lines.Text())
		require.NotEqual(t, "error", fields[0], lines.Text())
		pid, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		pids = append(pids, pid)
		require.DirExists(t, fields[2])
	}
	require.NotEmpty(t, pids)
	require.NotEmpty(t, processesOf(dir))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond)
	}
	require.Eventually(t, func() bool { return len(processesOf(dir)) == 0 }, 10*time.Second, 10*time.Millisecond)
	require.NotEmpty(t, entries(t, dir), "nobody was left to remove the folders")

	startServer(t, Options{Settings: TestSettings()})
	require.Len(t, entries(t, dir), 1, "the next start removes them")
}

func TestStopLeavesNoProcessAndNoFolder(t *testing.T) {
	dir := ownTempDir(t)
	server := startServer(t, Options{Settings: TestSettings()})
	_, err := pgx.Connect(t.Context(), server.DSN("postgres")) // a client that stays
	require.NoError(t, err)
	pid := server.host.(*local).proc.pid
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group, "a Ctrl-C for our group must not reach the server")
	family := append(childrenOf(pid), pid)
	require.Greater(t, len(family), 3)

	require.NoError(t, server.Stop(t.Context()))
	requireNothingLeft(t, dir)
	for _, one := range family {
		require.False(t, alive(one))
	}
	_, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port()))
	require.Error(t, err)
}

func TestKillTakesTheBackendsAndStopTheSharedMemory(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	busy, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	require.NoError(t, err)
	backend := int(busy.PgConn().PID())
	require.True(t, alive(backend))
	segment := sharedMemory(t, server)
	require.Contains(t, segments(t), segment)

	require.NoError(t, server.Kill())
	require.False(t, alive(backend))
	require.Contains(t, segments(t), segment, "a crash leaves it")
	require.NoError(t, server.Stop(t.Context()))
	require.NotContains(t, segments(t), segment)
}

// sharedMemory returns the number of the server's System V segment.
func sharedMemory(t *testing.T, server *Server) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(server.DataDir(), "postmaster.pid"))
	require.NoError(t, err)
	fields := strings.Fields(strings.Split(string(content), "\n")[6])
	require.Len(t, fields, 2)
	return fields[1]
}

func segments(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	var numbers []string
	for line := range strings.Lines(string(content)) {
		numbers = append(numbers, strings.Fields(line)[1])
	}
	return numbers
}

func TestStopWithAnEndedContextLeavesNothing(t *testing.T) {
	dir := ownTempDir(t)
	server := startServer(t, Options{Settings: TestSettings()})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, server.Stop(ended))
	requireNothingLeft(t, dir)
}

// TestCancelledStartLeavesNothing cancels at ever later moments, until a start
// is through.
func TestCancelledStartLeavesNothing(t *testing.T) {
	dir := ownTempDir(t)
	cancelled := 0
	for after := time.Duration(0); ; after += 80 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		server, err := StartPostgres(ctx, Options{Settings: TestSettings(), LocalOnly: true})
		cancel()
		skipWithoutPostgres(t, err)
		if err == nil {
			require.NoError(t, server.Stop(t.Context()))
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireNothingLeft(t, dir)
		cancelled++
	}
	require.Greater(t, cancelled, 2)
}

// TestCancelWhileTheServerStartsLeavesNothing cancels when the server runs and
// does not answer yet.
func TestCancelWhileTheServerStartsLeavesNothing(t *testing.T) {
	startServer(t, Options{Settings: TestSettings()}) // skips where there is none
	dir := ownTempDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if running, _ := filepath.Glob(filepath.Join(dir, "*", pidFile)); len(running) > 0 {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := StartPostgres(ctx, Options{Settings: TestSettings(), LocalOnly: true})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "wait for the server")
	requireNothingLeft(t, dir)
}

// TestCancelDoesNotWaitForInitdb starts an initdb that would run for an hour,
// with a child, as the real one has.
func TestCancelDoesNotWaitForInitdb(t *testing.T) {
	slow := fakeInstallation(t, "17.1")
	require.NoError(t, os.WriteFile(slow.program("initdb"), []byte("#!/bin/sh\nsleep 3600.25; :\n"), 0o755))
	dir := ownTempDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := startLocal(ctx, Options{}, slow, unprivileged())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), time.Minute)
	requireNothingLeft(t, dir)
	require.Empty(t, processesOf("sleep 3600.25"))
}

func TestCancelledStandbyLeavesNothing(t *testing.T) {
	primary := startServer(t, Options{Settings: TestSettings()})
	dir := ownTempDir(t)
	for after := 10 * time.Millisecond; ; after += 60 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		standby, err := primary.Standby(ctx)
		cancel()
		if err == nil {
			require.NoError(t, standby.Stop(t.Context()))
			break
		}
		if !strings.Contains(err.Error(), ErrNoBasebackup.Error()) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			requireNothingLeft(t, dir)
			continue
		}
		t.Skipf("SKIPPED: %v", err)
	}
	requireNothingLeft(t, dir)
}

func TestPasswordIsOnNoCommandLine(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	startPgbouncer(t, server, TransactionPooling)
	require.Empty(t, processesOf(server.password))
	require.NotEmpty(t, processesOf(server.folder.path), "the search finds what there is")
}

// ownTempDir makes a temporary folder for this test alone. Its name is short,
// because a socket goes into it, and every user may enter it.
func ownTempDir(t *testing.T) string {
	t.Helper()
	dir := readableFolder(t)
	t.Setenv("TMPDIR", dir)
	return dir
}

func requireNothingLeft(t *testing.T, dir string) {
	t.Helper()
	require.Empty(t, entries(t, dir))
	require.Empty(t, processesOf(dir))
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	return paths
}

// processesOf returns the command lines of the running processes that contain text.
func processesOf(text string) []string {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if line := commandLine(pid); strings.Contains(line, text) && alive(pid) {
			found = append(found, line)
		}
	}
	return found
}
