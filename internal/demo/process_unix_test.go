//go:build unix

package demo

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// exists tells whether there is such a process. Ours are reaped, so no dead one counts.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// The terminal's Ctrl-C goes to a process group. A worker that it reached would die in the middle of a call.
func TestWorkersAreOutOfReachOfCtrlC(t *testing.T) {
	t.Parallel()
	w, err := startWorker([]string{os.Args[0], workerArgument}, "A", "demo/test/A")
	require.NoError(t, err)
	defer w.end()
	group, err := syscall.Getpgid(w.process.Pid)
	require.NoError(t, err)
	require.Equal(t, w.process.Pid, group)
}

func TestStoppedWorkerIsSeenToStandStill(t *testing.T) {
	t.Parallel()
	w, err := startWorker([]string{os.Args[0], workerArgument}, "A", "demo/test/A")
	require.NoError(t, err)
	defer w.end()
	standing, err := isStopped(w.process.Pid)
	require.NoError(t, err)
	require.False(t, standing)
	require.NoError(t, w.stall(t.Context()))
	require.NoError(t, w.send(command{Call: callConnect, DSN: server.DSN("postgres"), Application: "test"}))
	stopped, err := isStopped(w.process.Pid)
	require.NoError(t, err)
	require.True(t, stopped)
	require.Empty(t, w.replies, "what it was sent waits")
	require.NoError(t, w.proceed(t.Context()))
	r, err := w.answer(t.Context(), callConnect)
	require.NoError(t, err)
	require.Equal(t, outcomeConnected, r.Outcome)
}
