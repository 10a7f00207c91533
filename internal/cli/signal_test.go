//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program builds fencectl once for the tests that need a process.
var program = sync.OnceValues(func() (string, error) {
	file := filepath.Join(scratch, "fencectl")
	if output, err := exec.Command("go", "build", "-o", file, "../../cmd/fencectl").CombinedOutput(); err != nil {
		return "", errors.New(string(output))
	}
	return file, nil
})

// process runs fencectl as a process of its own, which writes what it says to stderr.
func process(t *testing.T, dsn string, stderr io.Writer, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	file, err := program()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), file, args...)
	cmd.Env = append(os.Environ(), "FENCECTL_DSN="+dsn)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	require.NoError(t, cmd.Start())
	return cmd, &stdout
}

// firstOnly is a way to the server for one connection; a request to cancel, which is a second one, gets lost.
func firstOnly(t *testing.T, dsn string) string {
	t.Helper()
	target, err := url.Parse(dsn)
	require.NoError(t, err)
	address := target.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}()
	target.Host = listener.Addr().String()
	return target.String()
}

func TestASignalInterruptsTheProgram(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		waiting := watchFor("waiting up to")
		cmd, stdout := process(t, dsn, waiting, "acquire", "r", "--owner", "w2", "--ttl", "1m", "--wait", "1m", "-o", "json")
		<-waiting.seen
		require.NoError(t, cmd.Process.Signal(signal))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		assert.Equal(t, 130, exit.ExitCode())
		assert.Equal(t, "interrupted", result{stdout: stdout.String()}.failure(t)["kind"])
	}
}

func TestASecondSignalKillsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	holdRow(t, dsn, "r")
	cmd, _ := process(t, firstOnly(t, dsn), io.Discard, "release", "r", "--owner", "w1", "--generation", "1")
	blocked(t, dsn)
	begun := time.Now()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case err := <-done:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.True(t, exit.Sys().(syscall.WaitStatus).Signaled(), "ended by the signal, not by itself: %v", err)
			assert.Less(t, time.Since(begun), cancelPatience)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestAnInterruptedCallThatCannotBeCancelledLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	holdRow(t, dsn, "r")
	ctx, interrupt := context.WithCancel(t.Context())
	done := shell{ctx: ctx, env: on(firstOnly(t, dsn)).env}.start(t, "publish", "r", "--owner", "w1", "--generation", "1", "-o", "json")
	blocked(t, dsn)
	interrupt()
	got := <-done
	assert.Equal(t, 130, got.code)
	failure := got.failure(t)
	assert.Equal(t, true, failure["outcome_unknown"])
	assert.Contains(t, failure["message"], "may have taken effect")
}
