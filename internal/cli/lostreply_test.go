package cli

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unreliable is a way to the server on which the replies to the first commits get lost: the server does what
// it was asked, and the connection ends before the client hears of it.
type unreliable struct {
	dsn     string
	lost    atomic.Int32 // replies still to lose
	refused atomic.Int32 // connections to refuse after the first loss
}

// loseReplies returns a DSN of the same database whose first n commits are not answered.
func loseReplies(t *testing.T, dsn string, n int32) *unreliable {
	t.Helper()
	target, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	address := target.Host
	way := &unreliable{}
	way.lost.Store(n)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go way.serve(client, address)
		}
	}()
	target.Host = listener.Addr().String()
	way.dsn = target.String()
	return way
}

func (u *unreliable) serve(client net.Conn, address string) {
	defer client.Close()
	if u.lost.Load() <= 0 && u.refused.Add(-1) >= 0 {
		return
	}
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer upstream.Close()
	var losing atomic.Bool
	go func() {
		defer upstream.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if bytes.Contains(bytes.ToLower(buffer[:n]), []byte("commit\x00")) && u.lost.Add(-1) >= 0 {
				losing.Store(true)
			}
			if _, err := upstream.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := upstream.Read(buffer)
		if err != nil || losing.Load() {
			return // what was read is the answer to the commit
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestALostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	way := loseReplies(t, dsn, 1)
	taken := on(way.dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "-o", "json")
	assert.Equal(t, 0, taken.code, taken.stdout)
	assert.Equal(t, "replayed", taken.object(t)["outcome"], "the first try had been granted")
	assert.Equal(t, 1.0, taken.object(t)["generation"])
	assert.Contains(t, taken.stderr, "trying again")

	way = loseReplies(t, dsn, 2)
	published := on(way.dsn).run(t, "publish", "r", "--owner", "w1", "--generation", "1", "-o", "json")
	assert.Equal(t, 0, published.code, published.stdout)
	assert.Equal(t, "replayed", published.object(t)["outcome"])
	assert.Equal(t, 1.0, published.object(t)["revision"], "published once")
}

func TestARestartAfterALostReplyIsWaitedFor(t *testing.T) {
	t.Parallel()
	way := loseReplies(t, newDatabase(t), 1)
	way.refused.Store(2) // one of them is pgx's request to cancel
	taken := on(way.dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "-o", "json")
	assert.Equal(t, 0, taken.code, taken.stdout)
	assert.Equal(t, "replayed", taken.object(t)["outcome"])
}

func TestALostOutcomeExitsWith6AndTheIDFindsItOut(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	way := loseReplies(t, dsn, 100)
	taken := on(way.dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "-o", "json")
	assert.Equal(t, 6, taken.code, taken.stdout)
	failure := taken.failure(t)
	assert.Equal(t, "outcome_unknown", failure["kind"])
	assert.Equal(t, true, failure["outcome_unknown"])
	assert.Equal(t, true, failure["retryable"])
	id := failure["request_id"].(string)
	assert.Contains(t, failure["hint"], "--request-id "+id)
	again := on(dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "--request-id", id, "-o", "json")
	assert.Equal(t, "replayed", again.object(t)["outcome"])

	published := on(way.dsn).run(t, "publish", "r", "--owner", "w1", "--generation", "1")
	assert.Equal(t, 6, published.code)
	assert.Empty(t, published.stdout)
	assert.Regexp(t, `--operation-key [0-9a-f-]{36}`, published.stderr)

	for _, args := range []string{
		"renew r --owner w1 --generation 1 --ttl 1m", "release r --owner w1 --generation 1",
		"seize r --generation 1 --by anna", "raise-floor r --at-least 7", "remove r --generation 2 --by anna",
	} {
		got := on(way.dsn).run(t, append(strings.Fields(args), "-o", "json")...)
		assert.Equal(t, 6, got.code, args)
		assert.Equal(t, true, got.failure(t)["outcome_unknown"], args)
	}
}

func TestALostServerAfterALostReplyIsStillAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	way := loseReplies(t, dsn, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	retry := watchFor("trying again")
	sh := shell{ctx: ctx, env: on(way.dsn).env, stderr: retry}
	done := sh.start(t, "acquire", "r", "--owner", "w1", "--ttl", "1m", "-o", "json")
	<-retry.seen
	admin := connect(t, server.DSN("postgres"))
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	execute(t, admin, "ALTER DATABASE "+pgx.Identifier{u.Path[1:]}.Sanitize()+" ALLOW_CONNECTIONS false")
	got := <-done
	assert.Equal(t, 6, got.code, got.stdout)
	assert.Equal(t, true, got.failure(t)["outcome_unknown"], "not merely: cannot connect")
}

func TestABackendThatIsKilledInACallLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	holdRow(t, dsn, "r")
	done := on(dsn).start(t, "publish", "r", "--owner", "w1", "--generation", "1", "-o", "json")
	killer := connect(t, dsn)
	for {
		select {
		case got := <-done:
			assert.Equal(t, 6, got.code, got.stdout)
			failure := got.failure(t)
			assert.Equal(t, "57P01", failure["sqlstate"])
			assert.Equal(t, true, failure["outcome_unknown"])
			return
		default:
			execute(t, killer, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'fencectl' AND wait_event_type = 'Lock'`)
		}
	}
}

func TestALostReplyToAReadIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	locker := connect(t, dsn)
	execute(t, locker, "BEGIN")
	execute(t, locker, "LOCK TABLE fence.lease IN ACCESS EXCLUSIVE MODE")
	done := on(dsn).start(t, "leases", "-o", "json")
	blocked(t, dsn)
	execute(t, connect(t, dsn), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'fencectl'`)
	got := <-done
	assert.Equal(t, 5, got.code, got.stdout)
	assert.Equal(t, false, got.failure(t)["outcome_unknown"])
}
