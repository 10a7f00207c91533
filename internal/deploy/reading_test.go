package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

func TestReadingCommandsWorkWithOneRoleAndWriteNothing(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	before := db.fingerprint()
	for _, role := range procs.Roles() {
		reader := db.as("IN ROLE " + role.Name)
		reader.clean()
		status, err := reader.deployer().Status(ctx)
		require.NoError(t, err)
		require.True(t, status.UpToDate, role.Name)
		require.EqualValues(t, 6, status.Version)
		doctor, err := reader.deployer().Doctor(ctx)
		require.NoError(t, err)
		require.Equal(t, deploy.FindingOK, finding(t, doctor, "deployment").Status)
	}
	require.Equal(t, before, db.fingerprint())
}

func TestReadingCommandsSendNothingThatWritesAndOnlyInReadOnlyTransactions(t *testing.T) {
	t.Parallel()
	harmless := regexp.MustCompile(`(?i)^\s*(SELECT|WITH|SET LOCAL|SAVEPOINT|RELEASE|ROLLBACK)\b`)
	for _, db := range []*database{newDatabase(t), newInstalled(t)} {
		var statements []string
		e, err := engine.Open(db.dsn, engine.Options{AfterStatement: func(_ int, sql string) { statements = append(statements, sql) }})
		require.NoError(t, err)
		d := deploy.New(e)
		for _, run := range []func() error{
			func() error { return second(d.Status(ctx)) },
			func() error { return second(d.Verify(ctx)) },
			func() error { return second(d.Doctor(ctx)) },
			func() error { return second(d.Migrate(ctx, deploy.MigrateOptions{DryRun: discard{}})) },
		} {
			statements = nil
			require.NoError(t, run())
			readOnly := false
			for _, sql := range statements {
				if sql == "begin isolation level repeatable read read only" {
					readOnly = true
					continue
				}
				require.Regexp(t, harmless, sql)
				require.NotContains(t, sql, "advisory")
				require.True(t, readOnly || strings.Contains(sql, "pg_backend_pid"), sql)
			}
			require.True(t, readOnly)
		}
	}
}

func TestReadingCommandsFindDriftWithOneRole(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("ALTER FUNCTION fence.about() STABLE; GRANT EXECUTE ON FUNCTION fence.seize TO PUBLIC; ALTER TABLE fence.lease SET (fillfactor = 100)")
	worker := db.as("IN ROLE fence_worker")
	require.Equal(t, objects(db.verify()), objects(worker.verify()))
	require.Len(t, worker.verify().Differences, 4)
	status, err := worker.deployer().Status(ctx)
	require.NoError(t, err)
	require.False(t, status.UpToDate)
	doctor, err := worker.deployer().Doctor(ctx)
	require.NoError(t, err)
	require.Equal(t, deploy.FindingWarning, finding(t, doctor, "deployment").Status)
}

func TestWithoutAnyRoleReadingCommandsSayWhichOneIsMissing(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	nobody := db.as("")
	known := kind(t, engine.KindNotPermitted, second(nobody.deployer().Status(ctx)))
	require.Contains(t, known.Hint, "GRANT fence_reader")
	kind(t, engine.KindNotPermitted, second(nobody.deployer().Verify(ctx)))
	doctor, err := nobody.deployer().Doctor(ctx)
	require.NoError(t, err)
	require.Equal(t, deploy.FindingUnknown, finding(t, doctor, "deployment").Status)
}

func TestReadingCommandsOnAnEmptyDatabaseSayThatNothingIsInstalled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.fingerprint()
	for _, who := range []*database{db, db.as("")} {
		status, err := who.deployer().Status(ctx)
		require.NoError(t, err)
		require.False(t, status.Installed)
		require.False(t, status.UpToDate)
		require.EqualValues(t, 0, status.Version)
		require.EqualValues(t, 6, status.Newest)
		require.Len(t, status.Migrations, 6)
		for _, m := range status.Migrations {
			require.Equal(t, deploy.StatePending, m.State)
		}
		verify := who.verify()
		require.False(t, verify.Installed)
		require.False(t, verify.Clean)
		require.Len(t, verify.Differences, 1)
		require.NoError(t, second(who.deployer().Doctor(ctx)))
	}
	require.Equal(t, before, db.fingerprint())
}

func TestStatusTellsDriftFromPending(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("ALTER FUNCTION fence.about() STABLE; UPDATE fence.ledger SET file_hash = 'older' WHERE routine = 'renew'; CREATE FUNCTION fence.other() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	states := map[string]deploy.State{}
	for _, r := range status.Routines {
		states[r.Name] = r.State
	}
	require.Equal(t, deploy.StateDrifted, states["about"])
	require.Equal(t, deploy.StatePending, states["renew"])
	require.Equal(t, deploy.StateCurrent, states["acquire"])
	require.Equal(t, deploy.StateUnknown, states["fence.other()"])
	require.NotNil(t, status.Routines[0].AppliedAt)
	require.Equal(t, "postgres", status.Routines[0].AppliedBy)
}
