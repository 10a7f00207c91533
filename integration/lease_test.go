package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func firstLease(db *Database) {
	a := db.session()
	before := db.now()
	got := a.gets("acquired", acquire("report:42", "a"))
	after := db.now()

	assert.EqualValues(db.t, 1, *got.Generation)
	assert.Equal(db.t, "a", *got.Holder)
	assert.Equal(db.t, minute, *got.RemainingMS)
	row := db.row("report:42")
	assert.WithinRange(db.t, row.AcquiredAt, before, after)
	assert.Equal(db.t, minute, row.LeaseUntil.Sub(row.AcquiredAt).Milliseconds())
	assert.Equal(db.t, row.Generation, row.TermGeneration)
	assert.Equal(db.t, row.Owner, row.TermOwner)
	assert.Nil(db.t, row.ReleasedAt)
}

func heldUntilRunOut(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	got := b.gets("held", acquire("r", "b"))
	assert.Nil(db.t, got.Generation)
	assert.Equal(db.t, a.name, *got.Holder)
	assert.WithinDuration(db.t, db.row("r").LeaseUntil, *got.LeaseUntil, 0)
	assert.Positive(db.t, *got.RemainingMS)
	assert.LessOrEqual(db.t, *got.RemainingMS, minute)

	db.expire("r")
	got = b.gets("acquired", acquire("r", "b"))
	assert.Equal(db.t, token.Generation+1, *got.Generation)
	assert.Equal(db.t, "b", *got.Holder)
	a.gets("held", acquire("r", a.name))
}

func releasedIsFree(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	a.gets("released", release(token))
	assert.Equal(db.t, token.Generation+1, b.takes("r").Generation)
}

func takeOverSupersedes(db *Database) {
	a, b := db.session(), db.session()
	old := a.takes("report:42")
	db.expire("report:42")
	token := b.takes("report:42")

	a.gets("rejected: superseded", publish(old, "too late"))
	a.gets("rejected: superseded", check(old))
	a.gets("refused: superseded", requires(old))
	a.gets("refused: superseded", renew(old))
	a.gets("refused: superseded", release(old))

	b.gets("accepted", publish(token, "b's"))
	assert.Equal(db.t, "b's", db.published("report:42")[0].Payload)
}

func expiredStillCounts(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	a.gets("ok", check(token))
	a.gets("accepted", publish(token, "late, and nobody minds"))
	a.gets("rejected: expired", check(token, procedures.Unexpired))
	a.gets("rejected: expired", publish(token, "late", whileUnexpired))
	a.gets("renewed", renew(token))
	a.gets("ok", check(token, procedures.Unexpired))
	a.gets("released", release(token))
}

func attributesOfHolder(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r", saying(`{"pod": "a-1", "since": 3}`))
	got := b.gets("held", acquire("r", "b", saying(`{"pod": "b-1"}`)))
	assert.JSONEq(db.t, `{"pod": "a-1", "since": 3}`, string(got.Attributes))
	a.gets("renewed", renew(token))
	a.gets("released", release(token))
	got = b.gets("acquired", acquire("r", "b"))
	assert.Empty(db.t, got.Attributes)
	assert.Empty(db.t, a.gets("held", acquire("r", "a")).Attributes)
}

func namesAreIndependent(db *Database) {
	a, b := db.session(), db.session().impatient()
	r := a.takes("r")
	a.begins().gets("ok", check(r))
	s := b.takes("s")
	b.gets("renewed", renew(s))
	b.gets("accepted", publish(s, "{}", thenRelease))
	assert.EqualValues(db.t, 1, s.Generation)
	a.gets("accepted", publish(r, "{}"))
	a.commits()
}

// clockNotTransactionStart: a transaction that began long ago would take leases that ran out since for alive
// ones, and give out leases that are over already.
func clockNotTransactionStart(db *Database) {
	a, old := db.session(), db.session()
	old.begins()
	old.looks()
	began := db.now()
	db.waitUntil(began.Add(5 * time.Millisecond))

	token := a.takes("r", lasting(1))
	db.waitUntil(db.row("r").LeaseUntil)
	old.gets("rejected: expired", check(token, procedures.Unexpired))
	old.gets("rejected: expired", publish(token, "{}", whileUnexpired))
	before := db.now()
	got := old.gets("acquired", acquire("r", "old", lasting(5000)))
	db.lasts(got, before, 5000)
	next := procedures.Token{Resource: "r", Owner: "old", Generation: *got.Generation}
	before = db.now()
	db.lasts(old.gets("renewed", renewFor(next, 7000)), before, 7000)
	old.commits()
}

func saysWhatItIs(db *Database) {
	got, err := db.session().About(db.ctx)
	require.NoError(db.t, err)
	assert.EqualValues(db.t, 1, got.ContractVersion)
	assert.NotEmpty(db.t, got.Engine)
	assert.Contains(db.t, db.e.name(), got.EngineVersion[:2])
	assert.Positive(db.t, got.SchemaVersion)
	assert.Contains(db.t, []string{"wal", "none"}, got.TimelineSource)
}

func statusShowsStates(db *Database) {
	a := db.session()
	a.takes("live", saying(`{"pod": "a-1"}`))
	a.takes("expired")
	db.expire("expired")
	a.gets("released", release(a.takes("released")))
	a.gets("seized", seize("seized", a.takes("seized").Generation, "operator"))
	a.gets("raised", raiseFloor("unused", 10))

	states := map[string]string{}
	db.reads(func(scan func(...any) error) error {
		var resource, state string
		var remaining, ttl int64
		err := scan(&resource, &state, &remaining, &ttl)
		states[resource] = state
		if state == "live" {
			assert.Positive(db.t, remaining, resource)
			assert.LessOrEqual(db.t, remaining, ttl)
		} else {
			assert.Zero(db.t, remaining, resource)
		}
		return err
	}, "SELECT resource, state, remaining_ms, ttl_ms FROM fence.lease_status")
	assert.Equal(db.t, map[string]string{
		"live": "live", "expired": "expired", "released": "released", "seized": "seized", "unused": "unused",
	}, states)
}

func grantsAreDurable(db *Database) {
	const setting = "synchronous_commit"
	for _, c := range []call{
		acquire("r", "a"), seize("r", 1, "operator"), remove("r", 2, "operator"), raiseFloor("", 10), raiseFloor("s", 10),
	} {
		a := db.session().sets(setting, "off").begins()
		a.asks(c)
		assert.Equal(db.t, "on", a.has(setting), c.name)
		a.commits()
		assert.Equal(db.t, "off", a.has(setting), "only for that transaction")
	}

	// A caller who waits for less than the default, but waits, is left alone; and who only uses a number
	// decides for itself.
	a := db.session().sets(setting, "local").begins()
	token := a.takes("t")
	assert.Equal(db.t, "local", a.has(setting))
	a.commits()
	a.sets(setting, "off").begins().gets("accepted", publish(token, "{}"))
	assert.Equal(db.t, "off", a.has(setting))
	a.commits()
}

// oneOfMany repeats the race often, since it cannot be forced: an absent row has no lock to wait for.
func oneOfMany(db *Database) {
	const clients = 64
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	sessions := db.manySessions(clients)
	for round := range rounds {
		resource := fmt.Sprint("fresh ", round)
		var mu sync.Mutex
		verdicts := map[string]int{}
		var winner string
		var holders []string
		together(sessions, func(_ int, s *session) {
			got, err := acquire(resource, s.name).make(db.ctx, s.connection)
			mu.Lock()
			defer mu.Unlock()
			verdicts[verdict(got, err)]++
			if err == nil {
				holders = append(holders, *got.Holder)
				if got.Generation != nil {
					winner = s.name
					assert.EqualValues(db.t, 1, *got.Generation)
				}
			}
		})
		require.Equal(db.t, map[string]int{"acquired": 1, "held": clients - 1}, verdicts, "round %d", round)
		require.Equal(db.t, repeat(winner, clients), holders)
	}
	log, err := db.log()
	require.NoError(db.t, err)
	assert.NotContains(db.t, log, "ERROR")
	assert.NotContains(db.t, log, "deadlock")
}

// differentNamesDoNotWait begins after a database's first grant, which writes down which history of the
// database this is: the others wait for that one.
func differentNamesDoNotWait(db *Database) {
	db.session().takes("the first")
	sessions := db.manySessions(16)
	for _, s := range sessions {
		s.sets("log_lock_waits", "on")
		s.sets("deadlock_timeout", "20ms") // after which a wait is logged
	}
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	together(sessions, func(_ int, s *session) {
		for range rounds {
			token := s.takes(s.name)
			s.gets("renewed", renew(token))
			s.begins().gets("ok", check(token))
			s.commits()
			s.gets("accepted", publish(token, "{}", keyed("k")))
			s.gets("refused: ahead_of_issuer", renew(procedures.Token{
				Resource: token.Resource, Owner: token.Owner, Generation: token.Generation + 1,
			}))
			s.gets("released", release(token))
		}
	})
	log, err := db.log()
	require.NoError(db.t, err)
	// A wait to extend a file is about storage, not about names.
	assert.NotRegexp(db.t, `still waiting for \S+ on (tuple|transaction|relation)`, log)
	assert.NotContains(db.t, log, "ERROR")
}
