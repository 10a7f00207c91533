package deploy_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

// script returns what a dry run prints.
func (db *database) script(options deploy.MigrateOptions) string {
	db.t.Helper()
	var out bytes.Buffer
	options.DryRun = &out
	result, err := db.deployer().Migrate(ctx, options)
	require.NoError(db.t, err)
	require.True(db.t, result.DryRun)
	return out.String()
}

// psql runs a script by hand.
func (db *database) psql(script string) {
	db.t.Helper()
	out, err := db.psqlOutput(script)
	require.NoError(db.t, err, out)
}

func (db *database) psqlOutput(script string) (string, error) {
	db.t.Helper()
	program := filepath.Join(shared.BinDir(), "psql")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("psql"); err != nil {
			db.t.Skip("no psql on this machine")
		}
	}
	file := filepath.Join(db.t.TempDir(), "script.sql")
	require.NoError(db.t, os.WriteFile(file, []byte(script), 0o600))
	out, err := exec.CommandContext(context.Background(), program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file, db.dsn).CombinedOutput()
	return string(out), err
}

// fingerprint changes with anything that is written to the catalogues or our tables.
func (db *database) fingerprint() string {
	db.t.Helper()
	return db.text(`SELECT concat_ws('|',
		(SELECT count(*) || max(xmin::text::bigint)::text FROM pg_class), (SELECT count(*) || max(xmin::text::bigint)::text FROM pg_proc),
		(SELECT count(*) || max(xmin::text::bigint)::text FROM pg_namespace), (SELECT count(*) FROM pg_roles WHERE rolname LIKE 'fence\_%'))`)
}

func TestADryRunsScriptRefusesAnotherDatabase(t *testing.T) {
	t.Parallel()
	script := newDatabase(t).script(migrateOptions())
	other := newDatabase(t)
	before := other.fingerprint()
	out, err := other.psqlOutput(script)
	require.Error(t, err)
	require.Contains(t, out, "written for another database")
	require.Equal(t, before, other.fingerprint())
}

func TestADryRunThatIsRunByHandInstallsWhatMigrateWould(t *testing.T) {
	t.Parallel()
	own := newServer(t) // roles have to be created, too
	db := own.newDatabase(t)
	before := db.fingerprint()
	floor := int64(77)
	options := migrateOptions()
	options.Floor = &floor
	script := db.script(options)
	require.Equal(t, before, db.fingerprint())
	for _, part := range []string{"CREATE ROLE", "CREATE SCHEMA fence", "CREATE TABLE fence.goose_db_version", "CREATE TABLE fence.lease ", "CREATE OR REPLACE FUNCTION fence.acquire", "INSERT INTO fence.ledger", "REVOKE ALL", "at_least = 77"} {
		require.Contains(t, script, part)
	}
	db.psql(script)
	db.clean()
	require.False(t, db.migrate().Changed)
	require.Equal(t, "78", db.acquire("r"))

	// It is the same as what migrate makes, down to the columns of goose's table and the grants.
	other := own.newDatabase(t)
	other.migrate()
	expected, found := other.catalogue(), db.catalogue()
	require.Equal(t, expected.Relations, found.Relations)
	require.Equal(t, expected.Routines, found.Routines)
	require.Equal(t, expected.Grants, found.Grants)
	require.Equal(t, expected.Schema, found.Schema)
	require.Contains(t, db.script(migrateOptions()), "Nothing to do")
}

func TestADryRunHasOnlyWhatIsPending(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("DROP FUNCTION fence.seize; CREATE FUNCTION fence.seize(int) RETURNS int LANGUAGE sql AS 'SELECT 1'; GRANT SELECT ON fence.lease TO fence_worker")
	script := db.script(migrateOptions())
	require.Contains(t, script, "DROP FUNCTION fence.seize(integer);")
	require.Contains(t, script, "CREATE OR REPLACE FUNCTION fence.seize")
	require.NotContains(t, script, "CREATE OR REPLACE FUNCTION fence.acquire")
	require.NotContains(t, script, "CREATE TABLE")
	require.NotContains(t, script, "CREATE ROLE")
	db.psql(script)
	db.clean()
	require.False(t, db.migrate().Changed)
}

func TestADryRunContinuesAnyVersion(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	for to := int64(1); to < 6; to++ {
		db := newDatabase(t)
		options := migrateOptions()
		options.To = to
		require.NoError(t, second(db.deployer().Migrate(ctx, options)))
		script := db.script(migrateOptions())
		db.psql(script)
		db.clean()
		require.False(t, db.migrate().Changed)
		// A script that was written for another state changes nothing.
		out, err := db.psqlOutput(script)
		require.Error(t, err)
		require.Contains(t, out, "the database is at migration 6")
		db.clean()
	}
}

func TestADryRunForASchemaOfAnotherOwnerLeavesItAllToThatOwner(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user")
	db.psql(db.script(migrateOptions()))
	db.clean()
	require.False(t, app.migrate().Changed)
}

// The user who asks for the script need not be the one who may run it.
func TestADryRunWorksWithoutRights(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	script := db.as("").script(migrateOptions())
	db.psql(script)
	db.clean()
	reader := db.as("IN ROLE fence_reader")
	require.Contains(t, reader.script(migrateOptions()), "Nothing to do")
	db.exec("DROP FUNCTION fence.seize")
	db.psql(reader.script(migrateOptions()))
	db.clean()
}

// Who may not read the floor gets a script that raises it, and never one that lowers it.
func TestTheFloorInAScriptIsNeverLowered(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("SELECT FROM fence.raise_floor(NULL, 500)")
	reader := db.as("IN ROLE fence_reader")
	for floor, expected := range map[int64]string{400: "500", 600: "600"} {
		db.exec("UPDATE fence.floor SET at_least = 500")
		options := migrateOptions()
		options.Floor = &floor
		db.psql(reader.script(options))
		require.Equal(t, expected, db.text("SELECT at_least::text FROM fence.floor"))
	}
}

func TestTheRolesOfAScriptMayAllExist(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	first, second := own.newDatabase(t), own.newDatabase(t)
	scripts := []string{first.script(migrateOptions()), second.script(migrateOptions())}
	first.psql(scripts[0])
	second.psql(scripts[1])
	second.clean()
	options := migrateOptions()
	options.Roles = deploy.RolesExisting
	require.NotContains(t, own.newDatabase(t).script(options), "CREATE ROLE")
	own.dropRoles(t)
	options.DryRun = discard{}
	known := kind(t, engine.KindUnfit, onlyError(own.newDatabase(t).deployer().Migrate(ctx, options)))
	require.Equal(t, len(procs.Roles()), strings.Count(known.Hint, "CREATE ROLE"))
}

func onlyError[T any](_ T, err error) error { return err }
