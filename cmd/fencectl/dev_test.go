//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestDevPrintsItsDSNFirstAndStopsCleanly(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t, elsewhere(), "dev")
			dsn := p.line(t)
			require.True(t, strings.HasPrefix(dsn, "postgres://"), dsn)
			require.Equal(t, int32(1), query[int32](t, dsn, "SELECT contract_version FROM fence.about()"), "the fence is installed")
			require.Equal(t, "127.0.0.1", query[string](t, dsn, "SHOW listen_addresses"))
			require.Contains(t, p.stderr.String(), "ignored: FENCECTL_DSN")
			require.Contains(t, p.stderr.String(), "export FENCECTL_DSN='"+dsn+"'")
			// Somebody works on it, and is not asked.
			conn := connect(t, dsn)
			_, err := conn.Exec(t.Context(), "BEGIN; SELECT fence.acquire('r', 'o', 60000)")
			require.NoError(t, err)
			p.signalGroup(t, s)
			require.Empty(t, p.rest(t), "the DSN is all of standard output")
			require.Zero(t, p.wait(t), "%s", p.stderr)
			p.requireNothingLeft(t)
		})
	}
}

func TestDevListensOnThePortThatIsAskedFor(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	p := start(t, nil, "dev", "--port", fmt.Sprint(port), "-o", "json")
	var first struct {
		DSN  string
		Port int
	}
	require.NoError(t, json.Unmarshal([]byte(p.line(t)), &first))
	require.Equal(t, port, first.Port)
	require.Equal(t, port, query[int](t, first.DSN, "SELECT inet_server_port()"))

	code, stdout, second := run(t, nil, "dev", "--port", fmt.Sprint(port), "-o", "json")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "could not bind")
	second.requireNothingLeft(t)

	p.ctrlC(t)
	require.Zero(t, p.wait(t))
	p.requireNothingLeft(t)
}

func TestDevNoticesThatItsServerHasEnded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the process number that the server tells is known to be right on Linux only")
	}
	p := start(t, nil, "dev")
	dsn := p.line(t)
	postmaster := query[int](t, dsn, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int")
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGQUIT))
	require.Equal(t, 1, p.wait(t))
	require.Contains(t, p.stderr.String(), "the server ended by itself")
	p.requireNothingLeft(t)
}

func TestDevInterruptedWhileItStarts(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "dev")
	eventually(t, "it has begun", func() bool { return strings.Contains(p.stderr.String(), "starting") })
	p.ctrlC(t)
	require.Equal(t, 130, p.wait(t))
	require.Empty(t, p.rest(t))
	p.requireNothingLeft(t)
}

func TestDevTakesNoDatabase(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, nil, "dev", "--dsn", "postgres://127.0.0.1:1/x")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	code, _, _ = run(t, nil, "dev", "--port", "65536")
	require.Equal(t, 2, code)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn := connect(t, dsn)
	defer conn.Close(t.Context())
	var answer T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

func perform(t *testing.T, dsn, sql string) {
	t.Helper()
	conn := connect(t, dsn)
	defer conn.Close(t.Context())
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
