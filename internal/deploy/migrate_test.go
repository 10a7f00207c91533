package deploy_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/procs"
)

var update = flag.Bool("update", false, "write the files that tests compare with anew")

var ctx = context.Background()

func migrateOptions() deploy.MigrateOptions {
	return deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout}
}

// kind requires an error of that kind, and returns it.
func kind(t *testing.T, expected deploy.Kind, err error) *deploy.Error {
	t.Helper()
	require.Error(t, err)
	var known *deploy.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, expected, known.Kind, "%v", err)
	return known
}

// catalogue reads what is installed.
func (db *database) catalogue() *engine.Catalogue {
	db.t.Helper()
	e, err := engine.Open(db.dsn, engine.Options{})
	require.NoError(db.t, err)
	var c *engine.Catalogue
	require.NoError(db.t, e.Read(ctx, func(ctx context.Context, r engine.Reader) error {
		c, err = r.Catalogue(ctx, engine.TimelineInstalled)
		return err
	}))
	return c
}

func TestTheExpectedObjectsAreThoseOfAFreshInstallation(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	if *update {
		// It ends with differences as long as the file is an old one.
		_, _ = db.deployer().Migrate(ctx, migrateOptions())
	} else {
		db.migrate()
	}
	found, err := json.MarshalIndent(db.catalogue().Relations, "", "  ")
	require.NoError(t, err)
	const file = "../engine/postgres_objects.json"
	if *update {
		require.NoError(t, os.WriteFile(file, append(found, '\n'), 0o644))
	}
	expected, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(expected), string(found))
}

func TestTheSignatureOfEachFileIsTheOneThatTheServerMakesOfIt(t *testing.T) {
	t.Parallel()
	c := newInstalled(t).catalogue()
	require.Len(t, c.Files, len(procs.Postgres(true)))
	require.Len(t, c.Routines, len(c.Files))
	for _, f := range c.Files {
		r := c.Routine(f.Identity)
		require.NotNil(t, r, f.Identity)
		require.Equal(t, f.ArgumentNames, append([]string(nil), r.ArgumentNames...), f.Identity)
		require.Equal(t, f.Defaults, r.Defaults, f.Identity)
		require.Equal(t, f.Result, r.Result, f.Identity)
		require.Equal(t, f.Language, r.Language, f.Identity)
		require.Equal(t, f.Volatile, r.Volatile, f.Identity)
		require.Equal(t, f.SecurityDefiner, r.SecurityDefiner, f.Identity)
		require.Equal(t, !f.Internal, r.SecurityDefiner, f.Identity)
		require.Equal(t, f.Settings, append([]string(nil), r.Settings...), f.Identity)
	}
}

func TestMigrateInstallsEverythingAndASecondRunChangesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var steps []deploy.Step
	options := migrateOptions()
	options.Progress = func(s deploy.Step) { steps = append(steps, s) }
	first, err := db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.True(t, first.Changed)
	require.EqualValues(t, 0, first.VersionBefore)
	require.EqualValues(t, 6, first.VersionAfter)
	require.Len(t, first.Migrations, 6)
	require.Len(t, first.Routines, len(procs.Postgres(true)))
	require.Empty(t, first.Dropped)
	phases := map[deploy.Phase]int{}
	for _, s := range steps {
		phases[s.Phase]++
	}
	require.Equal(t, 6, phases[deploy.PhaseMigration])
	require.Equal(t, len(procs.Postgres(true))+1, phases[deploy.PhaseRoutines])
	db.clean()

	const state = "SELECT string_agg(concat_ws(' ', kind, name, definition_hash, applied_at), ',' ORDER BY kind, name) || (SELECT string_agg(xmin::text, ',') FROM pg_proc WHERE pronamespace = 'fence'::regnamespace) FROM fence.deployment"
	before := db.text(state)
	second := db.migrate()
	require.False(t, second.Changed)
	require.Empty(t, second.Routines)
	require.Equal(t, before, db.text(state))
}

func TestMigrateAppliesTheFilesByteForByte(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	_, body, _ := strings.Cut(procs.Postgres(true)[0].Source(), "AS $$")
	body, _, _ = strings.Cut(body, "$$;")
	require.Equal(t, body, db.text("SELECT prosrc FROM pg_proc WHERE proname = $1 AND pronamespace = 'fence'::regnamespace", procs.Postgres(true)[0].Name))
}

func TestEightMigratesAtOnceOnEachOfTwoEmptyDatabasesApplyEverythingOnce(t *testing.T) {
	t.Parallel()
	own := newServer(t) // without roles: the databases collide there
	databases := []*database{own.newDatabase(t), own.newDatabase(t)}
	results := make([]deploy.MigrateResult, 16)
	failures := make([]error, 16)
	var group sync.WaitGroup
	barrier := make(chan struct{})
	for i := range results {
		d := databases[i%2].deployer()
		group.Go(func() {
			<-barrier
			results[i], failures[i] = d.Migrate(ctx, migrateOptions())
		})
	}
	close(barrier)
	group.Wait()
	for i, err := range failures {
		require.NoError(t, err, "migrate %d", i)
	}
	for i, db := range databases {
		var migrations, routines int
		for n, r := range results {
			if n%2 == i {
				migrations += len(r.Migrations)
				routines += len(r.Routines)
			}
		}
		require.Equal(t, 6, migrations)
		require.Equal(t, len(procs.Postgres(true)), routines)
		require.Equal(t, "0,1,2,3,4,5,6", db.text("SELECT string_agg(version_id::text, ',' ORDER BY id) FROM fence.goose_db_version"))
		db.clean()
	}
	log, err := os.ReadFile(own.LogPath())
	require.NoError(t, err)
	require.NotContains(t, string(log), "ERROR:")
}

func TestMigrateWorksForTheOwnerOfTheDatabaseWhoIsNoSuperuser(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	db := own.newDatabase(t)
	owner := db.as("CREATEROLE", `ALTER DATABASE "`+db.name+`" OWNER TO $user`)
	result := owner.migrate()
	require.Len(t, result.Roles, len(procs.Roles()))
	owner.clean()
	require.Equal(t, owner.user(), db.text("SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'fence'"))
	require.False(t, owner.migrate().Changed)
	require.Equal(t, "1", owner.text("SELECT generation::text FROM fence.acquire('r', 'o', 60000)"))
}

func TestMigrateWithExistingRolesNamesTheMissingOnes(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	db := own.newDatabase(t)
	owner := db.as("", `ALTER DATABASE "`+db.name+`" OWNER TO $user`)

	options := migrateOptions()
	known := kind(t, engine.KindNotPermitted, second(owner.deployer().Migrate(ctx, options)))
	require.Contains(t, known.Hint, "CREATE ROLE fence_worker NOLOGIN;")
	options.Roles = deploy.RolesExisting
	known = kind(t, engine.KindUnfit, second(owner.deployer().Migrate(ctx, options)))
	require.Contains(t, known.Message, "fence_worker")
	require.Empty(t, db.text("SELECT to_regnamespace('fence')::text"))

	db.exec(known.Hint)
	_, err := owner.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	owner.clean()
	// With the roles in place "create" needs no right either.
	require.False(t, owner.migrate().Changed)
}

func second[T any](_ T, err error) error { return err }

func TestMigrateTellsTheRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	newInstalled(t) // the roles exist
	nobody := db.as("")
	known := kind(t, engine.KindNotPermitted, second(nobody.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Hint, "GRANT CREATE ON DATABASE")

	installed := newInstalled(t)
	stranger := installed.as("")
	known = kind(t, engine.KindNotPermitted, second(stranger.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "may not act for it")
}

func TestASchemaThatIsNotOursStopsMigrateBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	own := newServer(t)
	db := own.newDatabase(t)
	db.exec("CREATE SCHEMA fence; CREATE TABLE fence.posts (id int)")
	known := kind(t, engine.KindUnfit, second(db.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "not fencectl's")
	require.Equal(t, "posts", db.text("SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'fence'::regnamespace"))
	require.Empty(t, db.text("SELECT obj_description('fence'::regnamespace)"))
	require.Equal(t, "0", db.text("SELECT count(*)::text FROM pg_roles WHERE rolname LIKE 'fence\\_%'"))
	require.False(t, db.verify().Clean)
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	require.False(t, status.Installed)
	// Neither is it taken away.
	kind(t, engine.KindUnfit, second(db.deployer().Uninstall(ctx, deploy.UninstallOptions{AllowDestructive: true})))
	kind(t, engine.KindUnfit, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	require.Equal(t, "posts", db.text("SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'fence'::regnamespace"))
}

func TestAnEmptySchemaThatADBAMadeIsAdopted(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user")
	require.True(t, app.migrate().Changed)
	app.clean()

	other := newDatabase(t)
	other.exec("CREATE SCHEMA fence")
	stranger := other.as("", "GRANT ALL ON SCHEMA fence TO $user")
	known := kind(t, engine.KindNotPermitted, second(stranger.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Hint, "run as")
}

func TestWhoeverMigratesTheSchemasOwnerOwnsAllOfIt(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user")
	db.migrate() // as the superuser
	db.clean()
	const owners = "SELECT string_agg(DISTINCT pg_get_userbyid(proowner)::text, ',') FROM pg_proc WHERE pronamespace = 'fence'::regnamespace"
	require.Equal(t, app.user(), db.text(owners))
	require.False(t, app.migrate().Changed)

	db.exec("ALTER FUNCTION fence.about() OWNER TO postgres")
	differences := db.verify().Differences
	require.Len(t, differences, 1)
	require.Equal(t, "function fence.about(), owner", differences[0].Object)
	kind(t, engine.KindNotPermitted, second(db.deployer().Migrate(ctx, migrateOptions())))
	db.exec(differences[0].Mend)
	db.clean()
}

func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec("CREATE DATABASE latin_deploy ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	latin := &database{t: t, name: "latin_deploy", dsn: shared.DSN("latin_deploy")}
	known := kind(t, engine.KindUnfit, second(latin.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "LATIN1")
	require.Empty(t, latin.text("SELECT to_regnamespace('fence')::text"))
	doctor, err := latin.deployer().Doctor(ctx)
	require.NoError(t, err)
	require.Equal(t, deploy.FindingUnfit, finding(t, doctor, "encoding").Status)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	d := deployerFor(t, "postgres://nobody@127.0.0.1:1/none") // nothing is sent
	negative, huge := int64(-1), int64(1)<<62+1
	for name, options := range map[string]deploy.MigrateOptions{
		"to": {To: 99}, "to below": {To: -1}, "roles": {Roles: "some"}, "floor": {Floor: &negative}, "huge floor": {Floor: &huge}, "lock": {LockTimeout: -1},
	} {
		require.Equal(t, engine.KindUsage, deploy.KindOf(second(d.Migrate(ctx, options))), name)
	}
	kind(t, engine.KindUsage, second(d.Down(ctx, deploy.DownOptions{To: 99, AllowDestructive: true})))
	kind(t, engine.KindDestructive, second(d.Down(ctx, deploy.DownOptions{})))
	kind(t, engine.KindDestructive, second(d.Uninstall(ctx, deploy.UninstallOptions{})))
	kind(t, engine.KindCannotConnect, second(d.Migrate(ctx, deploy.MigrateOptions{})))
	kind(t, engine.KindCannotConnect, second(d.Status(ctx)))
}

func TestAWrongPasswordIsNotPermittedAndNotPrinted(t *testing.T) {
	t.Parallel()
	dsn := strings.Replace(newDatabase(t).as("").dsn, ":secret@", ":hunter2-is-wrong@", 1)
	known := kind(t, engine.KindNotPermitted, second(deployerFor(t, dsn).Migrate(ctx, migrateOptions())))
	require.NotContains(t, fmt.Sprintf("%v %+v %s", known, known.Err, known.Hint), "hunter2")
}

func TestADatabaseThatANewerProgramMigratedIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := newInstalled(t)
	db.exec("INSERT INTO fence.goose_db_version (version_id, is_applied) VALUES (99, true)")
	known := kind(t, engine.KindUnfit, second(db.deployer().Migrate(ctx, migrateOptions())))
	require.Contains(t, known.Message, "migration 99")
	kind(t, engine.KindUnfit, second(db.deployer().Down(ctx, deploy.DownOptions{AllowDestructive: true})))
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	require.False(t, status.UpToDate)
	require.Equal(t, deploy.StateUnknown, status.Migrations[6].State)
	require.False(t, db.verify().Clean)
}

func TestMigrateToAnOlderVersionLeavesTheRoutinesOut(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	options := migrateOptions()
	options.To = 3
	result, err := db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.EqualValues(t, 3, result.VersionAfter)
	require.Empty(t, result.Routines)
	require.NotEmpty(t, result.Notes)
	result = db.migrate()
	require.Len(t, result.Migrations, 3)
	require.Len(t, result.Routines, len(procs.Postgres(true)))
	db.clean()
}

func TestTheFloorIsRaisedAndNeverLowered(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	options := migrateOptions()
	floor := int64(500)
	options.Floor = &floor
	result, err := db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.EqualValues(t, 500, *result.Floor)
	require.Equal(t, "501", db.text("SELECT generation::text FROM fence.acquire('r', 'o', 60000)"))

	floor = 400
	result, err = db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.EqualValues(t, 500, *result.Floor)

	floor = 9000
	_, err = db.deployer().Migrate(ctx, options)
	require.NoError(t, err)
	require.Equal(t, "9001", db.text("SELECT generation::text FROM fence.acquire('s', 'o', 60000)"))
}

// Where the engine refuses the WAL functions, generations are not raised by promotions, and about says so.
func TestWithoutWALFunctionsTheOtherTimelineIsInstalled(t *testing.T) {
	t.Parallel()
	newInstalled(t)
	db := newDatabase(t)
	app := db.as("", "CREATE SCHEMA fence AUTHORIZATION $user", "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	// The superuser may call it, but the routines run with the rights of the owner.
	db.migrate()
	app.clean()
	require.Equal(t, "none", app.text("SELECT timeline_source FROM fence.about()"))
	require.False(t, app.migrate().Changed)
	status, err := app.deployer().Status(ctx)
	require.NoError(t, err)
	require.True(t, status.UpToDate)
	doctor, err := app.deployer().Doctor(ctx)
	require.NoError(t, err)
	require.Equal(t, deploy.FindingWarning, finding(t, doctor, "timeline_source").Status)
	require.Equal(t, deploy.FindingUnknown, finding(t, doctor, "history").Status)

	db.exec("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
	app.clean() // what is installed is accepted
	require.Equal(t, []string{"timeline"}, app.migrate().Routines)
	require.Equal(t, "wal", app.text("SELECT timeline_source FROM fence.about()"))
}

func TestMigrateWorksWhateverTheDatabaseSetsForItsSessions(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, setting := range []string{
		"default_transaction_read_only = on", "default_transaction_isolation = 'serializable'", "search_path = 'nowhere'",
		"TimeZone = 'Asia/Tokyo'", "statement_timeout = '1s'", "synchronous_commit = off", "quote_all_identifiers = on",
		"check_function_bodies = off", "idle_in_transaction_session_timeout = '50ms'", "DateStyle = 'German'",
	} {
		(&database{t: t, dsn: shared.DSN("postgres")}).exec(fmt.Sprintf("ALTER DATABASE %s SET %s", db.name, setting))
	}
	db.migrate()
	db.clean()
	require.False(t, db.migrate().Changed)
	status, err := db.deployer().Status(ctx)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), *status.Migrations[0].AppliedAt, time.Minute)
}
