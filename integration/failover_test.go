package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/fencectl/fencectl/procs"
)

// epochStep is how far generations jump with each epoch.
const epochStep = int64(1) << 32

// plain returns a PostgreSQL without anything before it: for tests that are about the server, not about how
// one gets there.
func plain(t *testing.T, e engine) *postgres {
	t.Helper()
	server, ok := e.(*postgres)
	if !ok {
		t.Skipf("not run through %s: it is about the PostgreSQL server itself", e.name())
	}
	return server
}

// eachServer runs a test once for each PostgreSQL version of the run, on servers of the test's own: they are
// killed, promoted and restored.
func eachServer(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, e engine) {
		server := plain(t, e)
		version := "" // of a server that was there before: the preferred one of this machine
		if server.server != nil {
			version, _, _ = strings.Cut(server.server.Version(), ".")
		}
		test(t, version)
	})
}

// eachDatabase runs a test once for each PostgreSQL of the run, on databases of the shared server that nobody
// had before or has afterwards: the test may change routines.
func eachDatabase(t *testing.T, test func(t *testing.T, create func() *Database)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, e engine) {
		server := plain(t, e)
		test(t, func() *Database {
			ctx, cancel := context.WithTimeout(t.Context(), patience())
			t.Cleanup(cancel)
			return &Database{backend: server.create(t), t: t, e: e, ctx: ctx}
		})
	})
}

// newServer starts a server with one migrated database.
func newServer(t *testing.T, version string, settings map[string]string) *Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	t.Cleanup(cancel)
	all := devdb.TestSettings()
	for name, value := range settings {
		all[name] = value
	}
	server, err := devdb.StartPostgres(ctx, devdb.Options{Version: version, Settings: all})
	require.NoError(t, err)
	stopAtEnd(t, server)
	require.NoError(t, server.CreateDatabase(ctx, "app", "template0"))
	require.NoError(t, install(ctx, server.DSN("app")))
	return databaseOn(t, server, "app")
}

func stopAtEnd(t *testing.T, server *devdb.Server) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop server: %v", err)
		}
	})
}

// databaseOn is a database that exists on a server of the test's own.
func databaseOn(t *testing.T, server *devdb.Server, name string) *Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	t.Cleanup(cancel)
	e := &postgres{title: "PostgreSQL " + server.Version(), server: server, dsn: server.DSN}
	pool, err := pgxpool.New(ctx, server.DSN(name))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &Database{backend: &postgresDatabase{engine: e, database: name, pool: pool}, t: t, e: e, ctx: ctx}
}

func serverOf(db *Database) *devdb.Server { return db.e.(*postgres).server }

// generation acquires a resource after whoever had it, and returns the number given out.
func (d *Database) generation(resource string) int64 {
	d.t.Helper()
	s := d.session()
	if d.known(resource) {
		d.expire(resource)
	}
	return s.takes(resource).Generation
}

func (d *Database) known(resource string) (known bool) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error { return scan(&known) },
		"SELECT EXISTS (SELECT FROM fence.lease WHERE resource = $1)", resource)
	return known
}

func (d *Database) epoch() (epoch, timeline int64) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error { return scan(&epoch, &timeline) }, "SELECT epoch, timeline FROM fence.epoch")
	return epoch, timeline
}

// cutOff ends the replication of a standby: what the primary commits from now on never arrives.
func cutOff(t *testing.T, standby *Database) {
	t.Helper()
	standby.does("ALTER SYSTEM SET primary_conninfo = ''")
	standby.does("SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		var receivers int64
		standby.reads(func(scan func(...any) error) error { return scan(&receivers) }, "SELECT count(*) FROM pg_stat_wal_receiver")
		return receivers == 0
	}, 20*time.Second, 10*time.Millisecond, "the standby still receives")
}

// failOver makes an asynchronous standby, cuts it off, lets the primary give out more numbers, kills it and
// promotes the standby. It returns the new primary and the highest number that the old one gave out; only the
// old one has seen the resource unseen.
func failOver(t *testing.T, primary *Database, resource, unseen string) (promoted *Database, lost int64) {
	t.Helper()
	server, err := serverOf(primary).Standby(primary.ctx)
	if errors.Is(err, devdb.ErrNoBasebackup) {
		theRun.leavesOut(t, fmt.Sprintf("PostgreSQL %s: a promoted standby: there is no pg_basebackup", serverOf(primary).Version()))
	}
	require.NoError(t, err)
	stopAtEnd(t, server)
	require.NoError(t, serverOf(primary).WaitReplayed(primary.ctx, server))
	promoted = databaseOn(t, server, "app")
	cutOff(t, promoted)
	before := primary.row(resource).Generation
	for range 3 {
		lost = primary.generation(resource)
	}
	primary.generation(unseen)
	require.Greater(t, lost, before)
	require.NoError(t, serverOf(primary).Kill())
	require.NoError(t, server.Promote(primary.ctx))
	require.Equal(t, before, promoted.row(resource).Generation, "the last numbers are lost")
	require.False(t, promoted.known(unseen))
	return promoted, lost
}

func TestGenerationsRiseOverThePromotionOfAnAsynchronousStandby(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, version string) {
		first := newServer(t, version, nil)
		first.generation("report:42")
		_, firstTimeline := first.epoch()

		second, lost := failOver(t, first, "report:42", "seen by the first")
		token := procedures.Token{Resource: "report:42", Owner: "o", Generation: lost}
		second.session().gets("rejected: ahead_of_issuer", check(token))
		got := second.generation("report:42")
		assert.Greater(t, got, lost, "at once after the promotion, when the control file still shows the old timeline")
		second.session().gets("rejected: superseded", check(token))
		assert.Greater(t, second.generation("seen by the first"), epochStep, "a name that the new primary never saw")
		assert.Equal(t, got+1, second.generation("report:42"), "one jump, not one for each call")
		epoch, timeline := second.epoch()
		assert.Equal(t, []int64{2, firstTimeline + 1}, []int64{epoch, timeline})

		third, lost := failOver(t, second, "report:42", "seen by the second")
		assert.Greater(t, third.generation("report:42"), lost)
		epoch, _ = third.epoch()
		assert.Equal(t, int64(3), epoch)
		assert.Greater(t, third.generation("seen by the second"), 2*epochStep)
	})
}

func TestGenerationsRiseAfterAnOldDumpIsRestoredIntoANewCluster(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, version string) {
		old := newServer(t, version, nil)
		program := dumper(t, old)
		client, err := exec.LookPath("psql")
		if err != nil {
			theRun.leavesOut(t, "a dump restored elsewhere: there is no psql on the path")
		}
		old.generation("report:42")
		dump, err := exec.CommandContext(old.ctx, program, "--no-owner", "--no-privileges", serverOf(old).DSN("app")).Output()
		require.NoError(t, err)
		lost := old.generation("report:42")

		server, err := devdb.StartPostgres(old.ctx, devdb.Options{Version: version, Settings: devdb.TestSettings()})
		require.NoError(t, err)
		stopAtEnd(t, server)
		require.NoError(t, server.CreateDatabase(old.ctx, "app", "template0"))
		restore := exec.CommandContext(old.ctx, client, "--quiet", "--set=ON_ERROR_STOP=1", server.DSN("app"))
		restore.Stdin = bytes.NewReader(dump)
		output, err := restore.CombinedOutput()
		require.NoError(t, err, string(output))

		restored := databaseOn(t, server, "app")
		assert.Greater(t, restored.generation("report:42"), lost)
		epoch, _ := restored.epoch()
		assert.Equal(t, int64(2), epoch, "timeline 1 as before, and another system identifier")
	})
}

// dumper returns a pg_dump that can read the server: its own, or one on the path that is not older.
func dumper(t *testing.T, db *Database) string {
	t.Helper()
	server := serverOf(db)
	if program := filepath.Join(server.BinDir(), "pg_dump"); fileExists(program) {
		return program
	}
	program, err := exec.LookPath("pg_dump")
	if err == nil && majorOf(t, program) >= major(server.Version()) {
		return program
	}
	theRun.leavesOut(t, fmt.Sprintf("PostgreSQL %s: a dump restored elsewhere: there is no pg_dump", server.Version()))
	return ""
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// majorOf asks a program of PostgreSQL for its major version.
func majorOf(t *testing.T, program string) int {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err)
	words := strings.Fields(string(output)) // pg_dump (PostgreSQL) 15.18 (Debian …)
	require.Greater(t, len(words), 2, string(output))
	return major(words[2])
}

func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(first) // 0 where it is none: older than every server
	return number
}

func TestGenerationsRiseWhenTheTimelineGoesBackToOne(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		for _, c := range []struct {
			name  string
			alter string
			want  int64 // epoch after the next grant
		}{
			{"another identifier, a higher timeline", "system_identifier = system_identifier + 1, timeline = 5", 2},
			{"another identifier, the same timeline", "system_identifier = system_identifier + 1", 2},
			{"the same identifier, a higher timeline: rewound", "timeline = 5", 2},
			{"a timeline that is three steps behind", "timeline = timeline - 3", 4},
			{"nothing known yet", "system_identifier = NULL, timeline = NULL", 1},
		} {
			db := create()
			before := db.generation("report:42")
			db.does("UPDATE fence.epoch SET " + c.alter)
			after := db.generation("report:42")
			assert.Equal(t, before+1+(c.want-1)*epochStep, after, c.name)
			epoch, _ := db.epoch()
			assert.Equal(t, c.want, epoch, c.name)
			assert.Equal(t, 1+(c.want-1)*epochStep, db.generation("a new name"), c.name)
			db.session().gets("seized", seize("report:42", after, "operator"))
			assert.Equal(t, after+1, db.row("report:42").Generation, "no second jump: %s", c.name)
		}
	})
}

// A number that was given out must survive a crash, whatever the session's synchronous_commit is. The write
// that follows each call, and that nobody waits for, shows that this crash does lose what is not durable.
func TestACrashTakesNoNumberBack(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, version string) {
		db := newServer(t, version, map[string]string{
			"synchronous_commit": "off", "wal_writer_delay": "10s", "bgwriter_delay": "10s", "autovacuum": "off",
			"checkpoint_timeout": "1h",
		})
		db.does("CREATE TABLE unwaited (step text)")
		crashAfter := func(step string, s *session) {
			t.Helper()
			s.does("INSERT INTO unwaited VALUES ($1)", step)
			require.NoError(t, serverOf(db).Kill())
			require.NoError(t, serverOf(db).Restart(db.ctx))
			db = databaseOn(t, serverOf(db), "app")
			var kept []string
			db.reads(func(scan func(...any) error) error {
				var step string
				err := scan(&step)
				kept = append(kept, step)
				return err
			}, "SELECT step FROM unwaited")
			require.NotContains(t, kept, step, "the crash lost nothing: it proves nothing")
		}
		step := func(name string, run func(s *session), survives func() bool) {
			t.Helper()
			s := db.session()
			require.Equal(t, "off", s.has("synchronous_commit"))
			run(s)
			require.Equal(t, "off", s.has("synchronous_commit"), "%s leaves the session's own setting", name)
			crashAfter(name, s)
			assert.True(t, survives(), "%s was taken back", name)
		}

		var token procedures.Token
		step("acquire", func(s *session) { token = s.takes("report:42") },
			func() bool { return db.row("report:42").Generation == token.Generation })
		step("acquire in the caller's transaction", func(s *session) {
			s.begins()
			token = s.takes("other")
			s.commits()
		}, func() bool { return db.row("other").Generation == token.Generation })
		step("seize", func(s *session) { s.gets("seized", seize("other", token.Generation, "operator")) },
			func() bool { return db.row("other").Generation == token.Generation+1 })
		step("raise_floor of a resource", func(s *session) { s.gets("raised", raiseFloor("other", 700)) },
			func() bool { return db.row("other").Floor == 700 })
		step("raise_floor", func(s *session) { s.gets("raised", raiseFloor("", 500)) },
			func() bool {
				return db.session().asks(raiseFloor("", 1)).FloorAfter != nil && *db.session().asks(raiseFloor("", 1)).FloorAfter == 500
			})
		step("remove", func(s *session) { s.gets("removed", remove("other", token.Generation+1, "operator")) },
			func() bool { return !db.known("other") })
		assert.Equal(t, int64(701), db.generation("other"), "above the floor that remove left")
	})
}

func TestACrashKeepsAllThatWasCommitted(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, version string) {
		db := newServer(t, version, nil)
		a := db.session()
		token := a.takes("report:42")
		a.gets("accepted", publish(token, "result", keyed("once")))
		a.gets("renewed", renew(token))
		stale := token
		stale.Generation++
		a.gets("rejected: ahead_of_issuer", publish(stale, "x"))
		open := db.session().begins()
		open.gets("ok", check(token))
		open.gets("accepted", publish(token, "never committed"))
		before, result, refused := db.row("report:42"), db.published("report:42"), db.rejections("report:42")

		require.NoError(t, serverOf(db).Kill())
		require.NoError(t, serverOf(db).Restart(db.ctx))
		db = databaseOn(t, serverOf(db), "app")
		assert.Equal(t, before, db.row("report:42"))
		assert.Equal(t, result, db.published("report:42"))
		assert.Equal(t, refused, db.rejections("report:42"))
		b := db.session()
		b.gets("replayed", publish(token, "result", keyed("once")))
		b.gets("accepted", publish(token, "after the crash"))
		epoch, _ := db.epoch()
		assert.Equal(t, int64(1), epoch, "a crash is no fail-over")
		assert.Equal(t, token.Generation+1, db.generation("report:42"))
	})
}

// Where the engine does not show its write-ahead log, numbering goes on, and about says what is missing.
func TestWithoutATimelineNumbersRiseByOneAndAboutSaysSo(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, create func() *Database) {
		db := create()
		before := db.generation("report:42")
		about := func() string {
			got, err := db.session().About(db.ctx)
			require.NoError(t, err)
			return got.TimelineSource
		}
		assert.Equal(t, "wal", about())
		routines := procs.Postgres(false)
		i := slices.IndexFunc(routines, func(r procs.Routine) bool { return r.Name == "timeline" })
		db.does(routines[i].Source())
		assert.Equal(t, "none", about())
		db.does("UPDATE fence.epoch SET timeline = 99, system_identifier = 1")
		assert.Equal(t, before+1, db.generation("report:42"))
		assert.Equal(t, before+1, db.row("report:42").Generation)
	})
}
