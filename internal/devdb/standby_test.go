package devdb

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

const timeline = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"

func TestStandbyReplicatesAndIsPromoted(t *testing.T) {
	installations, err := Installed(t.Context())
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, one := range installations {
		if seen[one.Major()] {
			continue
		}
		seen[one.Major()] = true
		t.Run(one.Version, func(t *testing.T) { replicateAndPromote(t, one.Major()) })
	}
}

func replicateAndPromote(t *testing.T, major string) {
	primary := startServer(t, Options{Version: major, Settings: TestSettings()})
	perform(t, primary.DSN("postgres"), "CREATE TABLE kept AS SELECT 1 AS n")
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, ErrNoBasebackup) {
		t.Skipf("SKIPPED: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(t.Context())) })
	require.NotEqual(t, primary.Port(), standby.Port())
	require.True(t, ask[bool](t, standby.DSN("postgres"), "SELECT pg_is_in_recovery()"))

	perform(t, primary.DSN("postgres"), "INSERT INTO kept VALUES (2)")
	require.NoError(t, primary.WaitReplayed(t.Context(), standby))
	require.Equal(t, 2, ask[int](t, standby.DSN("postgres"), "SELECT count(*) FROM kept"))
	require.Equal(t, "async", ask[string](t, primary.DSN("postgres"), "SELECT sync_state FROM pg_stat_replication"))
	require.Equal(t, 1, ask[int](t, primary.DSN("postgres"), timeline))

	require.NoError(t, primary.Kill())
	require.NoError(t, standby.Promote(t.Context()))
	require.Equal(t, 2, ask[int](t, standby.DSN("postgres"), timeline))
	perform(t, standby.DSN("postgres"), "INSERT INTO kept VALUES (3)")
	require.NoError(t, standby.Restart(t.Context()))
	require.Equal(t, 3, ask[int](t, standby.DSN("postgres"), "SELECT count(*) FROM kept"))
	require.ErrorContains(t, standby.Promote(t.Context()), "promote: ")

	log, err := os.ReadFile(standby.LogPath())
	require.NoError(t, err)
	require.NotContains(t, string(log), primary.password)
}

func TestUnstreamedTailIsLostWithAnAsynchronousStandby(t *testing.T) {
	primary := startServer(t, Options{Settings: TestSettings()})
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, ErrNoBasebackup) {
		t.Skipf("SKIPPED: %v", err)
	}
	require.NoError(t, err)
	perform(t, primary.DSN("postgres"), "CREATE TABLE kept (n int)")
	require.NoError(t, primary.WaitReplayed(t.Context(), standby))
	require.NoError(t, standby.Kill())
	perform(t, primary.DSN("postgres"), "INSERT INTO kept VALUES (1)")
	require.NoError(t, primary.Kill())
	require.NoError(t, standby.Restart(t.Context()))
	require.NoError(t, standby.Promote(t.Context()))
	require.Equal(t, 0, ask[int](t, standby.DSN("postgres"), "SELECT count(*) FROM kept"))
	require.NoError(t, standby.Stop(t.Context()))
}

func TestBasebackupMustNotBeOlderThanTheServer(t *testing.T) {
	t.Parallel()
	with := func(version string) Installation {
		one := fakeInstallation(t, version)
		require.NoError(t, os.WriteFile(one.program("pg_basebackup"), nil, 0o755))
		return one
	}
	fifteen, seventeen := with("15.3"), with("17.1")
	f := &finder{path: seventeen.BinDir + string(os.PathListSeparator) + fifteen.BinDir}

	for version, want := range map[string]Installation{"14.2": fifteen, "15.9": fifteen, "16.0": seventeen, "17.9": seventeen} {
		program, err := f.basebackup(t.Context(), fakeInstallation(t, version))
		require.NoError(t, err)
		require.Equal(t, want.program("pg_basebackup"), program, version)
	}
	_, err := f.basebackup(t.Context(), fakeInstallation(t, "18.0"))
	require.ErrorIs(t, err, ErrNoBasebackup)
	require.ErrorContains(t, err, "18.0")
}
