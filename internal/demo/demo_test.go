package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
	"github.com/fencectl/fencectl/internal/procedures"
)

const pollPause = 10 * time.Millisecond

// told is what happens in each step: actor, call, outcome, reason.
func told(stall, stalled, proceed string) []string {
	return []string{
		"A acquire acquired", "A " + stall + " " + stalled, "database lease_status expired", "B acquire acquired",
		"B publish accepted", "A " + proceed + " running", "A publish rejected superseded", "database publications kept",

		"A acquire acquired", "A " + stall + " " + stalled, "database lease_status expired", "A " + proceed + " running",
		"A publish accepted", "A publish rejected expired",

		"A acquire acquired", "A BEGIN begun", "A check ok", "A " + stall + " " + stalled, "database lease_status expired",
		"B acquire acquired", "B publish accepted", "A " + proceed + " running", "A COMMIT failed", "A renew refused superseded",

		"database rejections counted expired", "database rejections counted superseded", "database rejections counted superseded",
	}
}

func outline(steps []Step) []string {
	var lines []string
	for _, s := range steps {
		result := s.result()
		if s.Call == callCommit {
			result = s.Outcome // how the end of a session shows is the system's business
		}
		lines = append(lines, s.Actor+" "+s.Call+" "+result)
	}
	return lines
}

func TestStoryComesOutAsTold(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	heard := &audience{}
	options, said := on(dsn, heard)
	steps, err := Run(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, told(stallCall, outcomeStopped, continueCall), outline(steps))
	require.Equal(t, heard.steps, steps, "told as it happens, and returned")
	require.Len(t, heard.scenes, 4)
	require.Empty(t, said.String(), "the owner leaves nothing behind")
	requireNoRows(t, dsn)
	requireNoSessions(t, dsn)
	require.Zero(t, ask[int64](t, dial(t, dsn), "SELECT at_least FROM fence.floor"), "the floor is not the demo's to raise")
}

func TestStepsAreComplete(t *testing.T) {
	t.Parallel()
	options, _ := on(newDatabase(t), &audience{})
	steps, err := Run(t.Context(), options)
	require.NoError(t, err)
	last := int64(0)
	for i, s := range steps {
		require.Equal(t, i+1, s.Number)
		require.NotEmpty(t, s.Shows, "step %d", s.Number)
		require.GreaterOrEqual(t, s.ElapsedMS, last)
		last = s.ElapsedMS
		if s.Resource != nil {
			require.Regexp(t, `^demo/[a-z2-7]{10}/`, *s.Resource)
		}
		if s.Owner != nil {
			require.Regexp(t, `^demo/[a-z2-7]{10}/[AB]$`, *s.Owner)
		}
	}
	superseded, late := steps[6], steps[12]
	require.Equal(t, int64(1), *superseded.Generation)
	require.Equal(t, int64(2), *superseded.ObservedGeneration)
	require.Positive(t, *late.LateMS)
	require.Equal(t, procedures.UntilSuperseded, *late.Policy)
	require.Equal(t, procedures.Unexpired, *steps[13].Policy)
	require.NotEqual(t, *steps[0].PID, *steps[3].PID, "A and B are processes of their own")
	require.NotEqual(t, os.Getpid(), *steps[0].PID)
	require.Greater(t, *steps[19].TookMS, ttl.Milliseconds()/3, "B waited for the end of A's transaction")
	if runtime.GOOS == "linux" {
		require.Equal(t, "25P03", *steps[22].Reason)
	}
}

// A pooler hands the server's sessions around, and one of them is ended in the middle of the story.
func TestStoryComesOutThroughAPoolerToo(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	pooler, err := devdb.StartPgbouncer(t.Context(), server, devdb.TransactionPooling)
	if errors.Is(err, devdb.ErrNoPgbouncer) {
		t.Skipf("SKIPPED: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop(context.Background())) })
	options, _ := on(pooler.DSN(dial(t, dsn).Config().Database), &audience{})
	steps, err := Run(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, told(stallCall, outcomeStopped, continueCall), outline(steps))
	requireNoRows(t, dsn)
}

func TestStoryIsTheSameWhereWorkersAreToldToStall(t *testing.T) {
	t.Parallel()
	heard := &audience{}
	options, _ := on(newDatabase(t), heard)
	options.TellToStall = true
	steps, err := Run(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, told(callStall, outcomeStalled, callContinue), outline(steps))
	require.Contains(t, heard.scenes[0], "told to stall", "and it is said")
}

// A fence that is broken in the database must not go unnoticed.
func TestStoryThatComesOutDifferentlyNamesTheStep(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ mutate, want string }{
		"a stale publish counts": {
			`DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('fence.publish'::regproc),
			 'AND l.generation = p_generation AND l.owner = p_owner AND l.released_at IS NULL', ''); END $do$`,
			"step 7 (A: publish) differs: expected rejected superseded, found accepted",
		},
		"time refuses what nobody superseded": {
			`CREATE OR REPLACE FUNCTION fence.time_reason(p_policy text, p_lease_until timestamptz, p_clock timestamptz,
			 p_source_as_of timestamptz, p_max_source_age_ms bigint) RETURNS text LANGUAGE sql
			 AS 'SELECT CASE WHEN p_lease_until <= p_clock THEN ''expired'' END';
			 DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('fence.publish'::regproc),
			 'v_plain boolean := true', 'v_plain boolean := false'); END $do$`,
			"step 13 (A: publish) differs: expected accepted with late_ms, found rejected expired",
		},
		"an idle transaction holds the lease for ever": {
			`CREATE OR REPLACE FUNCTION fence.bound_idle_time(p_ttl_ms bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
			"step 20 (B: acquire): call of worker B: ",
		},
		"refusals are not counted": {
			`CREATE OR REPLACE VIEW fence.rejections AS SELECT r.resource, r.operation, r.reason, r.generation, r.owner,
			 r.occurrences, r.first_at, r.last_at, r.observed_generation, r.observed_owner, r.observed_lease_until, r.observed_at
			 FROM fence.rejection r WHERE r.operation <> 'renew'`,
			"step 27 (database: rejections) differs: expected 1 renew superseded, found nothing else",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t)
			execute(t, dial(t, dsn), test.mutate)
			options, _ := on(dsn, &audience{})
			_, err := Run(t.Context(), options)
			require.ErrorContains(t, err, test.want)
			if strings.Contains(test.want, "differs") {
				var difference *Difference
				require.ErrorAs(t, err, &difference)
			}
			requireNoRows(t, dsn)
			requireNoSessions(t, dsn)
		})
	}
}

// The end may come at any step: before, while and after a worker stands still, and inside its transaction.
func TestInterruptedStoryLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, number := range []int{1, 2, 4, 6, 10, 17, 18, 19, 22} {
		t.Run(fmt.Sprintf("after step %d", number), func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			workers := map[int]bool{}
			options, _ := on(dsn, &audience{onStep: func(s Step) error {
				if s.PID != nil {
					workers[*s.PID] = true
				}
				if s.Number == number {
					interrupt()
				}
				return nil
			}})
			steps, err := Run(ctx, options)
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, steps, number)
			for pid := range workers {
				require.False(t, exists(pid), "process %d is there", pid)
			}
			requireNoRows(t, dsn)
			requireNoSessions(t, dsn)
		})
	}
}

// B's call waits in the server for A's transaction: unless it is cancelled, it takes the lease after the clean-up.
func TestStoryInterruptedWhileACallWaitsLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	options, _ := on(dsn, &audience{onStep: func(s Step) error {
		if s.Number == 19 {
			go interruptOnWait(t, dsn, interrupt)
		}
		return nil
	}})
	steps, err := Run(ctx, options)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, steps, 19)
	requireNoSessions(t, dsn)
	requireNoRows(t, dsn)
}

func interruptOnWait(t *testing.T, dsn string, interrupt func()) {
	defer interrupt()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	err = poll(t.Context(), pollPause, func() (yes bool, err error) {
		return yes, conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'fencectl demo/%/B' AND wait_event_type = 'Lock')`).Scan(&yes)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAudienceThatLeavesEndsTheStory(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	gone := errors.New("nobody listens")
	options, _ := on(dsn, &audience{onStep: func(s Step) error {
		if s.Number == 2 {
			return gone
		}
		return nil
	}})
	steps, err := Run(t.Context(), options)
	require.ErrorIs(t, err, gone)
	require.Len(t, steps, 2)
	requireNoRows(t, dsn)
}

func TestWorkerThatDiesEndsTheStory(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	options, _ := on(dsn, &audience{onStep: func(s Step) error {
		if s.Number != 15 {
			return nil
		}
		process, err := os.FindProcess(*s.PID)
		if err != nil {
			return err
		}
		return process.Kill()
	}})
	_, err := Run(t.Context(), options)
	require.ErrorContains(t, err, "step 16 (A: BEGIN): worker A ended")
	requireNoRows(t, dsn)
}

// Whoever ends this process ends the workers: that is all that a worker that runs can notice.
func TestWorkerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	w, err := startWorker([]string{os.Args[0], workerArgument}, "A", "demo/test/A")
	require.NoError(t, err)
	_, err = w.call(t.Context(), command{Call: callConnect, DSN: newDatabase(t), Application: "test"})
	require.NoError(t, err)
	require.NoError(t, w.in.Close())
	select {
	case <-w.done:
		require.NoError(t, w.err)
	case <-time.After(callTimeout):
		w.end()
		t.Fatal("it went on")
	}
}

func TestDatabaseWithoutTheFenceIsRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, server.CreateDatabase(t.Context(), "without_fence", "template1"))
	t.Cleanup(func() { _ = server.DropDatabase(context.Background(), "without_fence") })
	options, _ := on(server.DSN("without_fence"), &audience{})
	steps, err := Run(t.Context(), options)
	require.Equal(t, engine.KindNotInstalled, engine.KindOf(err))
	var failure *engine.Error
	require.ErrorAs(t, err, &failure)
	require.Contains(t, failure.Hint, "fencectl migrate")
	require.Empty(t, steps)
	require.False(t, ask[bool](t, dial(t, options.DSN), "SELECT to_regnamespace('fence') IS NOT NULL"), "demo installs nothing")
}

func TestLoginWithoutRightsIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	for _, roles := range [][]string{nil, {"fence_worker"}, {"fence_reader"}} {
		options, _ := on(newLogin(t, dsn, roles...), &audience{})
		steps, err := Run(t.Context(), options)
		require.Equal(t, engine.KindNotPermitted, engine.KindOf(err), "%v: %v", roles, err)
		require.Empty(t, steps)
	}
	requireNoRows(t, dsn)
}

func TestOperatorRemovesTheResourcesAndSaysWhatStays(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	options, said := on(newLogin(t, dsn, "fence_worker", "fence_reader", "fence_operator"), &audience{})
	_, err := Run(t.Context(), options)
	require.NoError(t, err)
	conn := dial(t, dsn)
	for _, table := range []string{"lease", "lease_term", "publication", "publication_key"} {
		require.Zero(t, ask[int](t, conn, "SELECT count(*) FROM fence."+table), table)
	}
	require.Equal(t, 3, ask[int](t, conn, "SELECT count(*) FROM fence.intervention WHERE performed_by LIKE 'demo/%/clean-up'"))
	require.Contains(t, said.String(), "has raised the global floor")
	require.Contains(t, said.String(), `stay until "fencectl prune"`)
	require.NotContains(t, said.String(), "may not")
}

func TestInterruptedOperatorRemovesALeaseThatIsAlive(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	options, _ := on(newLogin(t, dsn, "fence_worker", "fence_reader", "fence_operator"), &audience{onStep: func(Step) error {
		interrupt()
		return nil
	}})
	_, err := Run(ctx, options)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, ask[int](t, dial(t, dsn), "SELECT count(*) FROM fence.lease"))
}

func TestWorkerAloneSaysWhatStays(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	options, said := on(newLogin(t, dsn, "fence_worker", "fence_reader"), &audience{})
	_, err := Run(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, 3, ask[int](t, dial(t, dsn), "SELECT count(*) FROM fence.lease WHERE resource LIKE 'demo/%'"))
	require.Contains(t, said.String(), "may not remove resources")
	require.Contains(t, said.String(), "/taken-over")
}

func TestOtherResourcesStay(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	conn := dial(t, dsn)
	for _, name := range []string{"demo/somebody/else", "report:42"} {
		execute(t, conn, "SELECT fence.acquire($1, 'w', 60000)", name)
		execute(t, conn, "SELECT fence.publish($1, 'w', 1, 'x', p_operation_key => 'k')", name)
		execute(t, conn, "SELECT fence.publish($1, 'w', 7, 'x')", name)
	}
	options, _ := on(dsn, &audience{})
	_, err := Run(t.Context(), options)
	require.NoError(t, err)
	for _, table := range []string{"lease", "lease_term", "publication", "publication_key", "rejection"} {
		require.Equal(t, 2, ask[int](t, conn, "SELECT count(*) FROM fence."+table), table)
	}
}

func TestTableFitsAHundredColumns(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	// Generations of a database that has been restored many times.
	execute(t, dial(t, dsn), "UPDATE fence.floor SET at_least = 9007199254740000")
	var out bytes.Buffer
	options, _ := on(dsn, NewTable(&out))
	_, err := Run(t.Context(), options)
	require.NoError(t, err)
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, line)
		require.Equal(t, strings.TrimRight(line, " \n"), strings.TrimRight(line, "\n"), "no blanks at the end")
	}
	require.Contains(t, out.String(), "rejected  superseded  9007199254740001  sent while stalled")
}
