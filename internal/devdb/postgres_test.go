package devdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestSettingsReachTheServerAsTheyAre(t *testing.T) {
	t.Parallel()
	settings := TestSettings()
	settings["cluster_name"] = `it's a \n test`
	server := startServer(t, Options{Settings: settings})
	require.Equal(t, `it's a \n test`, ask[string](t, server.DSN("postgres"), "SHOW cluster_name"))
	require.Equal(t, "off", ask[string](t, server.DSN("postgres"), "SHOW fsync"))
	require.Equal(t, "on", ask[string](t, server.DSN("postgres"), "SHOW synchronous_commit"))
	require.Equal(t, "UTF8", ask[string](t, server.DSN("postgres"), "SHOW server_encoding"))
	require.Equal(t, "127.0.0.1", ask[string](t, server.DSN("postgres"), "SHOW listen_addresses"))
	require.Equal(t, server.Port(), ask[int](t, server.DSN("postgres"), "SELECT inet_server_port()"))
}

func TestServerIsDurableUnlessAskedOtherwise(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{})
	require.Equal(t, "on", ask[string](t, server.DSN("postgres"), "SHOW fsync"))
	require.Equal(t, "on", ask[string](t, server.DSN("postgres"), "SHOW full_page_writes"))
}

func TestDatabaseIsACopyOfItsTemplate(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	require.NoError(t, server.CreateDatabase(t.Context(), `a "model"`, ""))
	perform(t, server.DSN(`a "model"`), "CREATE TABLE kept AS SELECT 42 AS n")
	require.NoError(t, server.CreateDatabase(t.Context(), "copy", `a "model"`))
	require.Equal(t, 42, ask[int](t, server.DSN("copy"), "SELECT n FROM kept"))

	require.ErrorContains(t, server.CreateDatabase(t.Context(), "copy", ""), `create database "copy"`)
	require.NoError(t, server.DropDatabase(t.Context(), "copy"))
	require.NoError(t, server.DropDatabase(t.Context(), "copy"))
	require.NoError(t, server.CreateDatabase(t.Context(), "copy", ""))
}

func TestEveryInstalledVersionStarts(t *testing.T) {
	installations, err := Installed(t.Context())
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, one := range installations {
		if seen[one.Major()] {
			continue // the first of a version is the one that is started
		}
		seen[one.Major()] = true
		t.Run(one.Version, func(t *testing.T) {
			server := startServer(t, Options{Version: one.Major(), Settings: TestSettings()})
			require.Equal(t, one.Version, server.Version())
			require.Equal(t, one.BinDir, server.BinDir())
		})
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	require.NotEmpty(t, server.password)
	require.Contains(t, server.DSN("postgres"), server.password)

	perform(t, server.DSN("postgres"), "SELECT 1")
	log, err := os.ReadFile(server.LogPath())
	require.NoError(t, err)
	refused := server.CreateDatabase(t.Context(), "postgres", "")
	require.Error(t, refused)
	require.NoError(t, server.Kill())
	unreachable := server.CreateDatabase(t.Context(), "x", "")
	require.Error(t, unreachable)
	config, err := os.ReadFile(filepath.Join(server.DataDir(), "fencectl.conf"))
	require.NoError(t, err)
	for _, printed := range []string{
		server.String(), fmt.Sprintf("%v %+v %#v", server, server, server),
		string(log), string(config), refused.Error(), unreachable.Error(),
	} {
		require.NotContains(t, printed, server.password)
	}
	require.NoFileExists(t, filepath.Join(server.folder.path, "password"))
}

func TestWrongPasswordIsRefused(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	_, err := pgx.Connect(t.Context(), dsn("wrong", server.Port(), "postgres"))
	require.ErrorContains(t, err, "28P01")
}

func TestCrashedServerKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	perform(t, server.DSN("postgres"), "CREATE TABLE kept AS SELECT 1 AS n")
	open, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	require.NoError(t, err)
	defer open.Close(context.Background())
	_, err = open.Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES (2)")
	require.NoError(t, err)

	require.NoError(t, server.Kill())
	_, err = pgx.Connect(t.Context(), server.DSN("postgres"))
	require.Error(t, err)
	require.NoError(t, server.Kill(), "a dead server may be killed")

	port := server.Port()
	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, port, server.Port())
	require.Equal(t, []int{1}, ask[[]int](t, server.DSN("postgres"), "SELECT array_agg(n) FROM kept"))
	log, err := os.ReadFile(server.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "automatic recovery in progress")
}

func TestRunningServerCanBeRestarted(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	const started = "SELECT pg_postmaster_start_time()"
	before := ask[time.Time](t, server.DSN("postgres"), started)
	require.NoError(t, server.Restart(t.Context()))
	require.True(t, ask[time.Time](t, server.DSN("postgres"), started).After(before))
}

func TestStoppedServerStaysStopped(t *testing.T) {
	t.Parallel()
	server := startServer(t, Options{Settings: TestSettings()})
	require.NoError(t, server.Stop(t.Context()))
	require.NoError(t, server.Stop(t.Context()))
	require.ErrorIs(t, server.Restart(t.Context()), ErrStopped)
	require.ErrorIs(t, server.Kill(), ErrStopped)
	require.NoDirExists(t, server.folder.path)
}

func TestTakenPortIsReportedWithTheServersLog(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = StartPostgres(t.Context(), Options{
		Port: taken.Addr().(*net.TCPAddr).Port, Settings: TestSettings(), LocalOnly: true,
	})
	skipWithoutPostgres(t, err)
	require.ErrorContains(t, err, "start postgres: server ended before it answered\n")
	require.ErrorContains(t, err, "could not bind")
}

func TestBadSettingIsReportedWithTheServersLog(t *testing.T) {
	t.Parallel()
	_, err := StartPostgres(t.Context(), Options{
		Settings: map[string]string{"shared_buffers": "plenty"}, LocalOnly: true,
	})
	skipWithoutPostgres(t, err)
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers"`)
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{
		"minor version":     {Version: "17.2"},
		"negative port":     {Port: -1},
		"port too high":     {Port: 65536},
		"setting's name":    {Settings: map[string]string{"fsync = off\nport": "1"}},
		"second line":       {Settings: map[string]string{"fsync": "off\nport=1"}},
		"reserved":          {Settings: map[string]string{"Port": "5432"}},
		"reserved location": {Settings: map[string]string{"data_directory": "/"}},
	} {
		_, err := StartPostgres(t.Context(), options)
		require.ErrorContains(t, err, "start postgres: ", name)
		require.NotErrorIs(t, err, ErrNoPostgres, name)
	}
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T, options Options) *Server {
	t.Helper()
	options.LocalOnly = true
	server, err := StartPostgres(t.Context(), options)
	skipWithoutPostgres(t, err)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func skipWithoutPostgres(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrNoPostgres) {
		t.Skipf("SKIPPED: %v", err)
	}
}

// ask returns the one value that a query answers.
func ask[T any](t *testing.T, dsn, query string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var answer T
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&answer))
	return answer
}

func perform(t *testing.T, dsn, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}
