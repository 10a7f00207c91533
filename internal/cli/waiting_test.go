package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencectl/fencectl/internal/procedures"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watcher is a stream that tells when a text has been written to it.
type watcher struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen chan struct{}
}

func watchFor(want string) *watcher { return &watcher{want: want, seen: make(chan struct{})} }

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.text.String(), w.want)
	w.text.Write(p)
	if !before && strings.Contains(w.text.String(), w.want) {
		close(w.seen)
	}
	return len(p), nil
}

// start runs a command in the background.
func (s shell) start(t *testing.T, args ...string) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() { done <- s.run(t, args...) }()
	return done
}

// blocked waits until a session of fencectl waits for a lock in this database.
func blocked(t *testing.T, dsn string) {
	t.Helper()
	conn := connect(t, dsn)
	require.Eventually(t, func() bool {
		var waiting bool
		err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'fencectl' AND wait_event_type = 'Lock')`).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, 10*time.Millisecond)
}

func TestWaitingEndsWhenTheHolderReleases(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	token := lease(t, dsn, "r", "w1")
	sh := on(dsn)
	waiting := watchFor("held by w1")
	sh.stderr = waiting
	begun := time.Now()
	done := sh.start(t, "acquire", "r", "--owner", "w2", "--ttl", "400ms", "--wait", "20s", "-o", "json")
	<-waiting.seen
	_, err := procedures.Postgres{DB: connect(t, dsn)}.Release(t.Context(), token)
	require.NoError(t, err)
	got := <-done
	assert.Equal(t, 0, got.code, got.stderr)
	assert.Equal(t, "acquired", got.object(t)["outcome"])
	assert.Less(t, time.Since(begun), 5*time.Second, "the holder's ten minutes are not waited for")

	var id string
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "SELECT request_id::text FROM fence.lease").Scan(&id))
	assert.Equal(t, id, got.object(t)["request_id"], "every try carries the same request id")
	assert.Equal(t, "replayed", sh.run(t, "acquire", "r", "--owner", "w2", "--ttl", "1s", "--request-id", id, "-o", "json").object(t)["outcome"])
}

func TestWaitingEndsAtItsLimitAsHeld(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	begun := time.Now()
	got := on(dsn).run(t, "acquire", "r", "--owner", "w2", "--ttl", "10s", "--wait", "300ms", "-o", "json")
	assert.Equal(t, 10, got.code)
	assert.Equal(t, "held", got.object(t)["outcome"])
	assert.Equal(t, "w1", got.object(t)["holder"])
	assert.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
	assert.Less(t, time.Since(begun), 2*time.Second)
}

func TestAWaitOfZeroTriesOnce(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	assert.Equal(t, 0, on(dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "--wait", "0").code)
	held := on(dsn).run(t, "acquire", "r", "--owner", "w2", "--ttl", "1m", "--wait", "0s")
	assert.Equal(t, 10, held.code)
	assert.NotContains(t, held.stderr, "waiting")
}

func TestARowThatATransactionHoldsCountsAsHeld(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	expire(t, dsn, "r")
	holdRow(t, dsn, "r")
	got := on(dsn).run(t, "acquire", "r", "--owner", "w2", "--ttl", "1m", "--timeout", "3s", "-o", "json")
	assert.Equal(t, 10, got.code, got.stdout)
	assert.Equal(t, "held", got.object(t)["outcome"])
	assert.Equal(t, true, got.object(t)["busy"])
	assert.Nil(t, got.object(t)["generation"])
	assert.Nil(t, got.object(t)["lease_until"], "nothing is known about the lease")

	begun := time.Now()
	got = on(dsn).run(t, "acquire", "r", "--owner", "w2", "--ttl", "1m", "--wait", "300ms")
	assert.Equal(t, 10, got.code)
	assert.Contains(t, got.stderr, "fencectl leases")
	assert.Less(t, time.Since(begun), 3*time.Second, "--wait bounds the wait for the row, too")
}

func TestPausesFollowTheHoldersLease(t *testing.T) {
	t.Parallel()
	cases := []struct {
		remainingMS, ttlMS int64
		busy               bool
		want               time.Duration
	}{
		{remainingMS: 40, ttlMS: 30_000, want: 40 * time.Millisecond},
		{remainingMS: 20_000, ttlMS: 30_000, want: 7500 * time.Millisecond},
		{remainingMS: 20_000, ttlMS: 100, want: 25 * time.Millisecond},
		{remainingMS: 3_600_000, ttlMS: 3_600_000, want: longestPause},
		{busy: true, ttlMS: 30_000, want: busyPause},
	}
	for _, c := range cases {
		answer := acquireAnswer{Busy: c.busy}
		answer.RemainingMS = c.remainingMS
		assert.Equal(t, c.want, pause(answer, c.ttlMS), fmt.Sprintf("%+v", c))
	}
	for range 1000 {
		assert.LessOrEqual(t, jitter(), 50*time.Millisecond)
	}
}

func TestInterruptedWhileWaitingForTheHolder(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	for _, format := range []string{"table", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		waiting := watchFor("waiting up to")
		done := shell{ctx: ctx, env: on(dsn).env, stderr: waiting}.start(t, "acquire", "r", "--owner", "w2", "--ttl", "1m", "--wait", "1m", "-o", format)
		<-waiting.seen
		interrupt()
		got := <-done
		assert.Equal(t, 130, got.code)
		if format == "json" {
			assert.Equal(t, "interrupted", got.failure(t)["kind"])
			assert.Equal(t, false, got.failure(t)["outcome_unknown"])
		} else {
			assert.Contains(t, got.stderr, "interrupted")
		}
	}
}

func TestInterruptedCallsAreCancelledInTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	holdRow(t, dsn, "r")
	ctx, interrupt := context.WithCancel(t.Context())
	done := shell{ctx: ctx, env: on(dsn).env}.start(t, "publish", "r", "--owner", "w1", "--generation", "1", "-o", "json")
	blocked(t, dsn)
	interrupt()
	got := <-done
	assert.Equal(t, 130, got.code)
	failure := got.failure(t)
	assert.Equal(t, "interrupted", failure["kind"])
	assert.Equal(t, false, failure["outcome_unknown"], "the server has said that it was cancelled")
	assert.Contains(t, failure["message"], "changed nothing")
	assert.NotEmpty(t, failure["operation_key"])

	var sessions int
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencectl'").Scan(&sessions))
	assert.Zero(t, sessions)
}

func TestAnInterruptedPruneTellsWhatItRemoved(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	for _, format := range []string{"json", "table"} {
		insertOldRejections(t, dsn, 500)
		ctx, interrupt := context.WithCancel(t.Context())
		progress := watchFor("removed so far")
		sh := shell{ctx: ctx, env: on(dsn).env, stderr: interrupting{progress, interrupt}}
		got := sh.run(t, "prune", "--older-than", "1d", "--batch", "1", "-v", "-o", format)
		assert.Equal(t, 130, got.code, got.stdout)
		var left float64
		require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM fence.rejection").Scan(&left))
		assert.Positive(t, left)
		if format == "json" {
			removed := got.failure(t)["removed"].([]any)
			assert.Equal(t, 500-left, removed[2].(map[string]any)["removed"])
		} else {
			assert.Regexp(t, `(?m)^rejection +[1-9]`, got.stdout)
		}
		execute(t, connect(t, dsn), "DELETE FROM fence.rejection")
	}
}

// interrupting is a stream that interrupts the command when it has seen what it waits for.
type interrupting struct {
	*watcher
	interrupt context.CancelFunc
}

func (i interrupting) Write(p []byte) (int, error) {
	n, err := i.watcher.Write(p)
	select {
	case <-i.seen:
		i.interrupt()
	default:
	}
	return n, err
}
