package deploy_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

const migrationLock = int64(0x66656e636563746c)

// holdLock takes the migration lock in a session of its own.
func (db *database) holdLock() *pgx.Conn {
	db.t.Helper()
	conn := connect(db.t, db.dsn+"&application_name=somebody")
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", migrationLock)
	require.NoError(db.t, err)
	return conn
}

// lockIsFree requires that nobody holds the migration lock.
func (db *database) lockIsFree() {
	db.t.Helper()
	require.Eventually(db.t, func() bool {
		return db.text("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == "0"
	}, 5*time.Second, 10*time.Millisecond)
}

func TestALockThatIsNotFreeInTimeNamesItsHolder(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	holder := db.holdLock()
	var waited []deploy.Step
	options := deploy.MigrateOptions{LockTimeout: 300 * time.Millisecond, Progress: func(s deploy.Step) { waited = append(waited, s) }}
	began := time.Now()
	known := kind(t, engine.KindLockTimeout, second(db.deployer().Migrate(ctx, options)))
	require.GreaterOrEqual(t, time.Since(began), options.LockTimeout)
	require.Len(t, known.Holders, 1)
	h := known.Holders[0]
	require.EqualValues(t, holder.PgConn().PID(), h.PID)
	require.Equal(t, "postgres", h.User)
	require.Equal(t, "somebody", h.ApplicationName)
	require.Equal(t, "127.0.0.1", h.ClientAddress)
	require.NotNil(t, h.ConnectedAt)
	require.Contains(t, known.Message, `application "somebody"`)
	require.Equal(t, deploy.PhaseLock, waited[1].Phase)
	require.Contains(t, waited[1].Name, "somebody")

	// Without waiting it still tries once.
	kind(t, engine.KindLockTimeout, second(db.deployer().Migrate(ctx, deploy.MigrateOptions{})))
	kind(t, engine.KindLockTimeout, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	kind(t, engine.KindLockTimeout, second(db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
	require.NoError(t, holder.Close(ctx))
	db.lockIsFree()
	require.NoError(t, second(db.deployer().Migrate(ctx, deploy.MigrateOptions{})))
}

// Somebody else's lock is somebody else's business: only the number of the holder may be known.
func TestTheHolderIsNamedAsFarAsThisUserMaySeeIt(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	holder := db.holdLock()
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user")
	known := kind(t, engine.KindLockTimeout, second(app.deployer().Migrate(ctx, deploy.MigrateOptions{})))
	require.EqualValues(t, holder.PgConn().PID(), known.Holders[0].PID)
	require.Nil(t, known.Holders[0].ConnectedAt)
}

func TestReadingCommandsDoNotWaitForTheLock(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.holdLock()
	db.clean()
	require.NoError(t, second(db.deployer().Status(ctx)))
	require.NoError(t, second(db.deployer().Doctor(ctx)))
}

func TestAMigrateThatIsInterruptedWhileItWaitsGivesUp(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.holdLock()
	limited, cancel := context.WithCancel(ctx)
	options := deploy.MigrateOptions{LockTimeout: time.Hour, Progress: func(s deploy.Step) {
		if s.Phase == deploy.PhaseLock {
			cancel()
		}
	}}
	err := second(db.deployer().Migrate(limited, options))
	kind(t, engine.KindInterrupted, err)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAMigrateThatIsInterruptedAnywhereGivesTheLockBackAndCanBeRunAgain(t *testing.T) {
	t.Parallel()
	for _, phase := range []deploy.Phase{deploy.PhasePreflight, deploy.PhaseSchema, deploy.PhaseMigration, deploy.PhaseRoutines, deploy.PhaseVerify} {
		db := newDatabase(t)
		limited, cancel := context.WithCancel(ctx)
		options := deploy.MigrateOptions{Progress: func(s deploy.Step) {
			if s.Phase == phase && s.Number != 1 {
				cancel()
			}
			if phase == deploy.PhaseSchema && s.Phase == phase {
				cancel()
			}
		}}
		err := second(db.deployer().Migrate(limited, options))
		kind(t, engine.KindInterrupted, err)
		require.ErrorIs(t, err, context.Canceled, phase)
		db.lockIsFree()
		db.migrate()
		db.clean()
	}
}

// The server is told to stop, too: a statement that waits does not outlive its client.
func TestADownThatIsInterruptedWhileItWaitsForATableStopsInTheServer(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	tx, err := db.connect().Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT FROM fence.acquire('r', 'o', 60000)")
	require.NoError(t, err)
	limited, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		done <- second(db.deployer().Down(limited, deploy.DownOptions{AllowDestructive: true, LockTimeout: time.Minute}))
	}()
	db.waitForBlocked()
	cancel()
	kind(t, engine.KindInterrupted, <-done)
	db.lockIsFree()
	require.Equal(t, "0", db.text("SELECT count(*)::text FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))
	require.NoError(t, tx.Commit(ctx))
	db.clean()
}

// waitForBlocked returns when a session of this database waits for a lock.
func (db *database) waitForBlocked() {
	db.t.Helper()
	conn := db.connect()
	require.Eventually(db.t, func() bool {
		var waiting int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting)
		return err == nil && waiting > 0
	}, 10*time.Second, 5*time.Millisecond)
}

func TestATableThatIsInUseForTooLongNamesItsUser(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	user := connect(t, db.dsn+"&application_name=worker-7")
	tx, err := user.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT FROM fence.acquire('r', 'o', 60000)")
	require.NoError(t, err)
	known := kind(t, engine.KindLockTimeout, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	require.Len(t, known.Holders, 1)
	require.EqualValues(t, user.PgConn().PID(), known.Holders[0].PID)
	require.Contains(t, known.Error(), "worker-7")
	// Nothing is gone: the routines went in the transaction that could not lock.
	require.NoError(t, tx.Rollback(ctx))
	db.clean()
}

func TestASessionThatIsLostMakesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	options := deploy.MigrateOptions{Progress: func(s deploy.Step) {
		if s.Phase == deploy.PhaseRoutines && s.Number == 3 {
			db.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencectl' AND datname = current_database()")
		}
	}}
	kind(t, engine.KindOutcomeUnknown, second(db.deployer().Migrate(ctx, options)))
	db.migrate()
	db.clean()
}

func TestPoolers(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	for _, mode := range []devdb.PoolMode{devdb.TransactionPooling, devdb.SessionPooling} {
		pooler, err := devdb.StartPgbouncer(ctx, shared.Server, mode)
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = pooler.Stop(ctx) })
		pooled := &database{t: t, name: db.name, dsn: pooler.DSN(db.name)}

		t.Run(string(mode), func(t *testing.T) {
			if mode == devdb.SessionPooling {
				require.False(t, pooled.migrate().Changed)
			} else {
				for range 3 {
					known := kind(t, engine.KindUnfit, second(pooled.deployer().Migrate(ctx, migrateOptions())))
					require.Contains(t, known.Hint, "directly")
					kind(t, engine.KindUnfit, second(pooled.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
				}
			}
			// Reading commands work through both, again and again.
			for range 3 {
				pooled.clean()
				status, err := pooled.deployer().Status(ctx)
				require.NoError(t, err)
				require.True(t, status.UpToDate)
				_, err = pooled.deployer().Migrate(ctx, deploy.MigrateOptions{DryRun: discard{}})
				require.NoError(t, err)
				doctor, err := pooled.deployer().Doctor(ctx)
				require.NoError(t, err)
				expected := deploy.FindingOK
				if mode == devdb.TransactionPooling {
					expected = deploy.FindingWarning
				}
				require.Equal(t, expected, finding(t, doctor, "pooler").Status)
			}
			// And leave nothing behind in the sessions that they shared.
			require.Equal(t, `"$user", public`, pooled.text("SELECT current_setting('search_path')"))
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
