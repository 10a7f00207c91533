package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

// babelfish is the T-SQL server of this test run, started when the first test asks for it.
var babelfish struct {
	once   sync.Once
	server *devdb.Babelfish
	err    error
}

// newMSSQL returns the DSN of an empty database in T-SQL; the test is skipped where there is no server for it.
func newMSSQL(t *testing.T) (dsn string) {
	t.Helper()
	babelfish.once.Do(func() {
		settings := devdb.TestSettings()
		settings["statement_timeout"] = "60s" // the driver's cancelling is ignored here
		babelfish.server, babelfish.err = devdb.StartBabelfish(context.Background(), devdb.Options{Settings: settings})
	})
	if errors.Is(babelfish.err, devdb.ErrNoBabelfish) {
		t.Skip("not run: there is no Babelfish on this machine")
	}
	require.NoError(t, babelfish.err)
	name := fmt.Sprintf("deploy_%d", databaseCount.Add(1))
	require.NoError(t, babelfish.server.CreateDatabase(context.Background(), name))
	return babelfish.server.DSN(name)
}

func TestAFreshTSQLInstallationIsClean(t *testing.T) {
	t.Parallel()
	dsn := newMSSQL(t)
	if *update {
		result, err := deployerFor(t, dsn).Migrate(context.Background(), deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
		t.Log(result, err)
		writeObjects(t, dsn, "../engine/mssql_objects.json")
		return
	}
	result, err := deployerFor(t, dsn).Migrate(context.Background(), deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	require.NoError(t, err)
	require.Empty(t, result.Notes)
	verified, err := deployerFor(t, dsn).Verify(context.Background())
	require.NoError(t, err)
	require.Empty(t, verified.Differences)

	again, err := deployerFor(t, dsn).Migrate(context.Background(), deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	require.NoError(t, err)
	require.False(t, again.Changed)
}

// writeObjects writes down the relations of a database.
func writeObjects(t *testing.T, dsn, file string) {
	t.Helper()
	e, err := engine.Open(dsn, engine.Options{})
	require.NoError(t, err)
	require.NoError(t, e.Read(context.Background(), func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineInstalled)
		require.NoError(t, err)
		text, err := json.MarshalIndent(c.Relations, "", "  ")
		require.NoError(t, err)
		return os.WriteFile(file, append(text, '\n'), 0o644)
	}))
}
