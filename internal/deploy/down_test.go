package deploy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/migrations"
	"github.com/fencectl/fencectl/procs"
)

func (db *database) acquire(resource string) string {
	db.t.Helper()
	return db.text("SELECT generation::text FROM fence.acquire($1, 'o', 60000)", resource)
}

func TestNumbersSurviveDownAndUp(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	require.Equal(t, "1", db.acquire("r"))
	db.exec("UPDATE fence.lease SET generation = 41; SELECT FROM fence.raise_floor('s', 30)")
	result, err := db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})
	require.NoError(t, err)
	require.EqualValues(t, 6, result.VersionBefore)
	require.EqualValues(t, 0, result.VersionAfter)
	require.Len(t, result.Migrations, 6)
	require.Len(t, result.Dropped, len(procs.Postgres(true)))
	require.EqualValues(t, 41, *result.Floor)
	require.Equal(t, "epoch,floor,goose_db_version", db.text("SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'fence'::regnamespace AND relkind = 'r'"))
	require.Equal(t, "0", db.text("SELECT count(*)::text FROM pg_proc WHERE pronamespace = 'fence'::regnamespace"))
	require.Equal(t, "5", db.text("SELECT count(*)::text FROM pg_roles WHERE rolname LIKE 'fence\\_%'"))
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	require.False(t, status.Installed)

	// A second time there is nothing to do.
	result, err = db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})
	require.NoError(t, err)
	require.Empty(t, result.Migrations)

	db.migrate()
	db.clean()
	require.Equal(t, "42", db.acquire("r"))
	require.Equal(t, "42", db.acquire("another"))
}

func TestDownToAVersionKeepsWhatIsOlder(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.acquire("r")
	result, err := db.deployer().Down(ctx, deploy.DownOptions{To: 4, AllowDestructive: true})
	require.NoError(t, err)
	require.Equal(t, []string{"00006_ledger.sql", "00005_views.sql"}, result.Migrations)
	require.EqualValues(t, 4, result.VersionAfter)
	require.Equal(t, "1", db.text("SELECT generation::text FROM fence.lease"))
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, status.Version)
	require.False(t, status.UpToDate)
	db.migrate()
	db.clean()
	require.Equal(t, "1", db.text("SELECT generation::text FROM fence.lease"))
}

// A number that is about to be committed counts, too.
func TestDownAndUninstallWaitForNumbersUnderWay(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"down", "uninstall"} {
		db := newInstalled(t)
		db.exec("SELECT FROM fence.raise_floor(NULL, 70)")
		tx, err := db.connect().Begin(ctx)
		require.NoError(t, err)
		var generation int64
		require.NoError(t, tx.QueryRow(ctx, "SELECT generation FROM fence.acquire('r', 'o', 60000)").Scan(&generation))
		require.EqualValues(t, 71, generation)
		highest := make(chan int64)
		go func() {
			if command == "down" {
				result, err := db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true, LockTimeout: time.Minute})
				if err != nil || result.Floor == nil {
					highest <- -1
					return
				}
				highest <- *result.Floor
				return
			}
			result, err := db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true, LockTimeout: time.Minute})
			if err != nil {
				highest <- -1
				return
			}
			highest <- *result.HighestGeneration
		}()
		db.waitForBlocked()
		require.NoError(t, tx.Commit(ctx))
		require.EqualValues(t, 71, <-highest, command)
	}
}

// The migration itself waits as well: for a caller who was already inside acquire when the routines went.
func TestTheFloorIsReadAfterTheLeaseTableIsLocked(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	require.NoError(t, second(db.deployer().Down(ctx, deploy.DownOptions{To: 2, AllowDestructive: true})))
	source, err := migrations.Postgres.ReadFile("postgres/00002_leases.sql")
	require.NoError(t, err)
	_, down, _ := strings.Cut(string(source), "-- +goose Down\n")
	tx, err := db.connect().Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "INSERT INTO fence.lease (resource, generation, acquired_at) VALUES ('r', 900, now())")
	require.NoError(t, err)
	conn, done := db.connect(), make(chan error)
	go func() {
		_, err := conn.Exec(ctx, down)
		done <- err
	}()
	db.waitForBlocked()
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-done)
	require.Equal(t, "900", db.text("SELECT at_least::text FROM fence.floor"))
}

func TestUninstallTellsTheHighestGenerationAndALaterInstallationStartsAboveIt(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("SELECT FROM fence.raise_floor(NULL, 1234)")
	require.Equal(t, "1235", db.acquire("r"))
	var steps []string
	result, err := db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true, Progress: func(s deploy.Step) {
		if s.Phase == deploy.PhaseDrop {
			steps = append(steps, s.Name)
		}
	}})
	require.NoError(t, err)
	require.True(t, result.Uninstalled)
	require.EqualValues(t, 1235, *result.HighestGeneration)
	require.Equal(t, []string{"highest generation 1235"}, steps)
	require.Len(t, result.RemainingRoles, len(procs.Roles()))
	require.Contains(t, result.DropRolesSQL, "DROP ROLE fence_worker")
	require.Empty(t, db.text("SELECT to_regnamespace('fence')::text"))
	require.Equal(t, "5", db.text("SELECT count(*)::text FROM pg_roles WHERE rolname LIKE 'fence\\_%'"))

	again, err := db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})
	require.NoError(t, err)
	require.False(t, again.Uninstalled)
	require.Nil(t, again.HighestGeneration, "what was given out before is not known any more")
	kind(t, engine.KindNotInstalled, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))

	options := migrateOptions()
	options.Floor = result.HighestGeneration
	_, err = db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.Equal(t, "1236", db.acquire("r"))
}

func TestTheHighestGenerationKnowsFloorsAndTablesThatRemainAfterDown(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"SELECT FROM fence.raise_floor(NULL, 55)", "SELECT FROM fence.raise_floor('r', 55)",
		"SELECT FROM fence.acquire('r', 'o', 60000); UPDATE fence.lease SET generation = 55",
	} {
		db := newInstalled(t)
		db.exec(change)
		result, err := db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})
		require.NoError(t, err)
		require.EqualValues(t, 55, *result.HighestGeneration, change)
	}
	db := newInstalled(t)
	db.exec("SELECT FROM fence.raise_floor(NULL, 55)")
	require.NoError(t, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	result, err := db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})
	require.NoError(t, err)
	require.EqualValues(t, 55, *result.HighestGeneration)
}

func TestUninstallDropsNothingThatOthersMade(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("CREATE VIEW public.dashboard AS SELECT * FROM fence.lease_status")
	known := kind(t, engine.KindOther, second(db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
	require.Contains(t, known.Hint, "view public.dashboard", strings.TrimSpace(known.Hint))
	db.clean()
}

func TestDownAndUninstallWorkForAnOwnerWhoIsNoSuperuser(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user")
	app.migrate()
	require.NoError(t, second(app.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	app.migrate()
	app.clean()
	require.NoError(t, second(app.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
	require.Empty(t, db.text("SELECT to_regnamespace('fence')::text"))
	// A member of no use is told so.
	other := newInstalled(t)
	kind(t, engine.KindNotPermitted, second(other.as("").deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
}
