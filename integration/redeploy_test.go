package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	fenceengine "github.com/fencectl/fencectl/internal/engine"
)

// deployer runs the commands of `fencectl migrate` on a database of the test's own.
func deployer(t *testing.T, db *Database) *deploy.Deployer {
	t.Helper()
	opened, err := fenceengine.Open(db.e.(*postgres).dsn(db.backend.(*postgresDatabase).database), fenceengine.Options{})
	require.NoError(t, err)
	return deploy.New(opened)
}

func migrate(t *testing.T, db *Database, floor *int64) deploy.MigrateResult {
	t.Helper()
	got, err := deployer(t, db).Migrate(db.ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout, Floor: floor})
	require.NoError(t, err)
	return got
}

// busyDatabase has given out numbers of several kinds, and returns the highest.
func busyDatabase(db *Database) (highest int64) {
	for range 5 {
		highest = db.generation("report:42")
	}
	db.generation("report:43")
	db.session().gets("raised", raiseFloor("report:44", highest+10))
	highest = db.generation("report:44")
	db.expire("report:44")
	db.session().gets("removed", remove("report:44", highest, "operator"))
	db.session().gets("raised", raiseFloor("a name to come", highest+20))
	return highest + 20
}

func TestGenerationsRiseOverMigratingDownAndUp(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db := create()
		highest := busyDatabase(db)
		down, err := deployer(t, db).Down(db.ctx, deploy.DownOptions{AllowDestructive: true, LockTimeout: deploy.DefaultLockTimeout})
		require.NoError(t, err)
		require.NotNil(t, down.Floor)
		assert.GreaterOrEqual(t, *down.Floor, highest)
		migrate(t, db, nil)
		for _, resource := range []string{"report:42", "report:44", "a name to come", "a new name"} {
			require.False(t, db.known(resource))
			assert.Greater(t, db.generation(resource), highest, resource)
		}
	})
}

func TestGenerationsRiseOverUninstallWhenItsNumberIsGivenBack(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db := create()
		highest := busyDatabase(db)
		gone, err := deployer(t, db).Uninstall(db.ctx, deploy.UninstallOptions{AllowDestructive: true, LockTimeout: deploy.DefaultLockTimeout})
		require.NoError(t, err)
		require.NotNil(t, gone.HighestGeneration)
		assert.GreaterOrEqual(t, *gone.HighestGeneration, highest)
		migrate(t, db, gone.HighestGeneration)
		assert.Greater(t, db.generation("report:42"), highest)
		assert.Greater(t, db.generation("a new name"), highest)
	})
}

func TestRoutinesThatAreAppliedAgainChangeNoLease(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db := create()
		a := db.session()
		token := a.takes("report:42")
		before := db.row("report:42")
		db.does("ALTER FUNCTION fence.acquire(text, text, bigint, uuid, jsonb) STABLE")
		db.does("UPDATE fence.ledger SET file_hash = 'of an older version'")
		require.NotEmpty(t, migrate(t, db, nil).Routines)
		assert.Equal(t, before, db.row("report:42"))
		a.gets("accepted", publish(token, "by a session that was there before"))
		db.session().gets("held", acquire("report:42", "b"))
		assert.Equal(t, token.Generation+1, db.generation("report:42"))
		a.gets("rejected: superseded", check(token))
	})
}
