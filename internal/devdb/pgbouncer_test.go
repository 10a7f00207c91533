package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestPgbouncerSharesConnectionsAsItsModeSays(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	require.NotEqual(t,
		backend(t, connect(t, server.DSN("postgres"))),
		backend(t, connect(t, server.DSN("postgres"))), "without pgbouncer")
	for mode, shared := range map[PoolMode]bool{SessionPooling: false, TransactionPooling: true, StatementPooling: true} {
		bouncer := startPgbouncer(t, server, mode)
		first, second := connect(t, bouncer.DSN("postgres")), connect(t, bouncer.DSN("postgres"))
		require.Equal(t, shared, backend(t, first) == backend(t, second), mode)
	}
}

func TestPgbouncerLetsOtherRolesIn(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	perform(t, server.DSN("postgres"), "CREATE ROLE worker LOGIN PASSWORD 'of its own'")
	bouncer := startPgbouncer(t, server, TransactionPooling)
	config, err := pgx.ParseConfig(bouncer.DSN("postgres"))
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.User, config.Password = "worker", "of its own"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var user string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_user::text").Scan(&user))
	require.Equal(t, "worker", user)

	config.Password = "another"
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.Error(t, err)
}

func TestPgbouncerLeavesNothing(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	bouncer := startPgbouncer(t, server, TransactionPooling)
	connect(t, bouncer.DSN("postgres")) // a client that stays does not hold it up
	log, err := os.ReadFile(bouncer.LogPath())
	require.NoError(t, err)
	require.NotContains(t, string(log), bouncer.password)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", bouncer, bouncer, bouncer), bouncer.password)

	require.NoError(t, bouncer.Stop(t.Context()))
	require.NoError(t, bouncer.Stop(t.Context()))
	require.True(t, bouncer.proc.ended())
	require.NoDirExists(t, bouncer.folder.path)
	_, err = pgx.Connect(t.Context(), bouncer.DSN("postgres"))
	require.Error(t, err)
}

func TestPgbouncerWithoutItsServerIsAnError(t *testing.T) {
	server := startServer(t, Options{Settings: TestSettings()})
	startPgbouncer(t, server, TransactionPooling) // skips where there is none
	require.NoError(t, server.Stop(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := StartPgbouncer(ctx, server, TransactionPooling)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "start pgbouncer: wait for pgbouncer")
}

func TestPgbouncerFollowsPreparedStatementsSince121(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"1.18.0": false, "1.20.1": false, "1.21.0": true, "1.24.1": true, "2.0.0": true} {
		bouncer := &Pgbouncer{version: version}
		require.Equal(t, want, bouncer.PreparedStatements(), version)
		require.Equal(t, want, strings.Contains(bouncer.configuration(1, TransactionPooling, ""), "max_prepared_statements"))
	}
}

func startPgbouncer(t *testing.T, server *Server, mode PoolMode) *Pgbouncer {
	t.Helper()
	bouncer, err := StartPgbouncer(t.Context(), server, mode)
	if errors.Is(err, ErrNoPgbouncer) {
		t.Skipf("SKIPPED: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Stop(context.Background())) })
	return bouncer
}

// connect opens a connection that prepares nothing and stays open.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn+"&default_query_exec_mode=simple_protocol")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func backend(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}
