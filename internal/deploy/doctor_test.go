package deploy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
)

// finding returns the finding of a check.
func finding(t *testing.T, result deploy.DoctorResult, check string) deploy.Finding {
	t.Helper()
	for _, f := range result.Findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no finding %s", check)
	return deploy.Finding{}
}

func (db *database) doctor() deploy.DoctorResult {
	db.t.Helper()
	result, err := db.deployer().Doctor(ctx)
	require.NoError(db.t, err)
	for _, f := range result.Findings {
		require.NotEmpty(db.t, f.Check)
		require.NotEmpty(db.t, f.Detail)
		require.Contains(db.t, []deploy.FindingStatus{deploy.FindingOK, deploy.FindingWarning, deploy.FindingUnfit, deploy.FindingUnknown}, f.Status)
		if f.Status == deploy.FindingWarning || f.Status == deploy.FindingUnfit {
			require.NotEmpty(db.t, f.Hint, f.Check)
		}
	}
	return result
}

func TestDoctorJudgesTheSettings(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	first := db.doctor()
	for _, check := range []string{"version", "encoding", "standby", "deployment", "timeline_source", "pooler", "full_page_writes", "synchronous_commit", "standbys", "history", "clock", "prepared_transactions", "transaction_isolation", "read_only", "lock_timeout", "connections", "autovacuum"} {
		require.Equal(t, deploy.FindingOK, finding(t, first, check).Status, "%s: %s", check, finding(t, first, check).Detail)
	}
	// The test server does without, which makes it unfit.
	require.Equal(t, deploy.FindingUnfit, finding(t, first, "fsync").Status)
	require.Equal(t, deploy.FindingUnfit, first.Status)
	require.Equal(t, deploy.FindingWarning, finding(t, first, "idle_in_transaction").Status)
	require.Equal(t, deploy.FindingWarning, finding(t, first, "tcp_keepalives").Status) // two hours by default

	for check, setting := range map[string]string{
		"synchronous_commit":    "synchronous_commit = off",
		"transaction_isolation": "default_transaction_isolation = 'repeatable read'",
		"read_only":             "default_transaction_read_only = on",
	} {
		(&database{t: t, dsn: shared.DSN("postgres")}).exec(fmt.Sprintf("ALTER DATABASE %s SET %s", db.name, setting))
		require.Equal(t, deploy.FindingWarning, finding(t, db.doctor(), check).Status, check)
	}
	for check, setting := range map[string]string{
		"idle_in_transaction": "idle_in_transaction_session_timeout = '1min'",
		"tcp_keepalives":      "tcp_keepalives_idle = 60",
	} {
		(&database{t: t, dsn: shared.DSN("postgres")}).exec(fmt.Sprintf("ALTER DATABASE %s SET %s; ALTER DATABASE %s SET tcp_keepalives_interval = 10", db.name, setting, db.name))
		require.Equal(t, deploy.FindingOK, finding(t, db.doctor(), check).Status, check)
	}
}

func TestWhatDoctorMayNotReadIsUnknown(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	tx, err := db.connect().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "SELECT 1")
	require.NoError(t, err)

	require.Equal(t, deploy.FindingOK, finding(t, db.doctor(), "oldest_transaction").Status)
	worker := db.as("IN ROLE fence_worker")
	result := worker.doctor()
	require.Equal(t, deploy.FindingUnknown, finding(t, result, "oldest_transaction").Status)
	require.Equal(t, deploy.FindingUnknown, finding(t, result, "history").Status)
	require.Contains(t, finding(t, result, "history").Detail, "timeline 1")
	require.Equal(t, deploy.FindingOK, finding(t, result, "standbys").Status) // it sees that there is none
	monitor := db.as("IN ROLE fence_reader, pg_monitor")
	require.Equal(t, deploy.FindingOK, finding(t, monitor.doctor(), "oldest_transaction").Status)
}

// Keep-alives are TCP's; over a local socket they say nothing about the clients.
func TestKeepalivesAreUnknownOverALocalSocket(t *testing.T) {
	t.Parallel()
	if shared.SocketDir() == "" {
		t.Skip("no socket")
	}
	db := newDatabase(t)
	local := &database{t: t, name: db.name, dsn: fmt.Sprintf("%s&host=%s", shared.DSN(db.name), shared.SocketDir())}
	require.Equal(t, deploy.FindingUnknown, finding(t, local.doctor(), "tcp_keepalives").Status)
}

func TestDoctorFindsPreparedTransactions(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("BEGIN; SELECT FROM fence.acquire('r', 'o', 60000); PREPARE TRANSACTION 'deploy_prepared'")
	require.Contains(t, finding(t, db.doctor(), "prepared_transactions").Detail, "1 prepared")
	db.exec("ROLLBACK PREPARED 'deploy_prepared'")
	require.Contains(t, finding(t, db.doctor(), "prepared_transactions").Detail, "no prepared")
}

func TestDoctorComparesTheHistoryWithTheOneOfTheLastGrant(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	require.Contains(t, finding(t, db.doctor(), "history").Detail, "no grant has recorded it yet")
	db.acquire("r")
	f := finding(t, db.doctor(), "history")
	require.Equal(t, deploy.FindingOK, f.Status)
	require.Contains(t, f.Detail, "epoch 1; timeline 1")
	for change, text := range map[string]string{
		"timeline = 5":          "older backup",
		"timeline = 0":          "promoted since",
		"system_identifier = 1": "another cluster",
	} {
		own := newInstalled(t)
		own.acquire("r")
		own.exec("UPDATE fence.epoch SET " + change)
		f := finding(t, own.doctor(), "history")
		require.Equal(t, deploy.FindingWarning, f.Status)
		require.Contains(t, f.Detail, text)
		require.Contains(t, f.Hint, "raise-floor")
	}
}

func TestStandbys(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	db := own.newDatabase(t)
	db.migrate()
	db.acquire("r")
	standby, err := own.Standby(ctx)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = standby.Stop(ctx) })

	f := finding(t, db.doctor(), "standbys")
	require.Equal(t, deploy.FindingWarning, f.Status)
	require.Contains(t, f.Detail, "asynchronous")
	require.Equal(t, deploy.FindingUnknown, finding(t, db.as("IN ROLE fence_worker").doctor(), "standbys").Status)

	// Nothing can be installed on the standby; looking at it works.
	require.NoError(t, own.WaitReplayed(ctx, standby))
	there := &database{t: t, name: db.name, dsn: standby.DSN(db.name)}
	there.clean()
	require.Equal(t, deploy.FindingUnfit, finding(t, there.doctor(), "standby").Status)
	known := kind(t, engine.KindUnfit, second(there.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "standby")
	kind(t, engine.KindUnfit, second(there.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))

	require.NoError(t, standby.Promote(ctx))
	f = finding(t, there.doctor(), "history")
	require.Equal(t, deploy.FindingWarning, f.Status)
	require.Contains(t, f.Detail, "promoted since the last grant")
	there.clean()
	require.False(t, there.migrate().Changed)
}
