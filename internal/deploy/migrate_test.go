package deploy_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/engine"
)

var update = flag.Bool("update", false, "write the files that tests compare with anew")

func TestTheExpectedObjectsAreThoseOfAFreshInstallation(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	if *update {
		// It ends with differences as long as the file is an old one.
		_, _ = db.deployer().Migrate(context.Background(), migrateOptions())
	} else {
		db.migrate()
	}
	e, err := engine.Open(db.dsn, engine.Options{})
	require.NoError(t, err)
	var found []byte
	require.NoError(t, e.Read(context.Background(), func(ctx context.Context, r engine.Reader) error {
		c, err := r.Catalogue(ctx, engine.TimelineInstalled)
		require.NoError(t, err)
		found, err = json.MarshalIndent(c.Relations, "", "  ")
		return err
	}))
	const file = "../engine/postgres_objects.json"
	if *update {
		require.NoError(t, os.WriteFile(file, append(found, '\n'), 0o644))
	}
	expected, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(expected), string(found))
}
