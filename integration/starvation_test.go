package integration

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func refusedCallersHoldNothing() (behaviours []behaviour) {
	for _, r := range refusedCallers() {
		behaviours = append(behaviours, that(
			r.name+" in an open transaction starves nobody",
			func(db *Database) { refusedCallerStarvesNobody(db, r) }))
	}
	for _, c := range tokenCalls() {
		for _, s := range situations() {
			behaviours = append(behaviours, that(
				c.name+" "+s.name+" in an open transaction holds no lock",
				func(db *Database) { refusalHoldsNoLock(db, c.with(s.token(db))) }))
		}
		if c.row == lease {
			behaviours = append(behaviours, that(
				c.name+" that was overtaken while it waited lets the new holder renew",
				func(db *Database) { overtakenCallerLetsRenew(db, c) }))
			if c.name == "require" {
				continue // it has raised: its transaction is over, and holds nothing
			}
			behaviours = append(behaviours, that(
				c.name+" that was overtaken while it waited is ended when it idles",
				func(db *Database) { endsWhenItIdles(overtakenCallerLetsRenew(db, c)) }, idleBound))
		}
	}
	return behaviours
}

func fencedTransactionsAreBounded() (behaviours []behaviour) {
	for _, c := range fencedCalls() {
		behaviours = append(behaviours,
			that("a transaction fenced by "+c.name+" outlives its lease and lets it be renewed",
				func(db *Database) { fencedTransactionLetsRenew(db, c) }),
			that("a take-over waits for a transaction fenced by "+c.name+", bounded",
				func(db *Database) { takeOverWaitsForFencedTransaction(db, c) }),
			that("a stalled transaction fenced by "+c.name+" is ended after its ttl and taken over",
				func(db *Database) { stalledTransactionIsEnded(db, c) }, idleBound),
			that(c.name+" keeps the caller's smaller bound on idling, and only for its transaction a smaller one",
				func(db *Database) { idleBoundOfTheCallerStays(db, c) }, idleBound, directSessions))
	}
	return behaviours
}

// refusedCaller is a caller who is refused, held or answered with an old answer while b holds the lease.
type refusedCaller struct {
	name    string
	verdict string
	call    func(db *Database, holder procedures.Token) call
}

func refusedCallers() []refusedCaller {
	var id = uuid.MustParse("6f1c3c0e-7d0b-4b52-9d3e-0a2b54a4a5d1")
	callers := []refusedCaller{
		{"an acquire that is held", "held", func(*Database, procedures.Token) call {
			return acquire("r", "somebody else")
		}},
		{"an acquire that is replayed", "replayed", func(db *Database, holder procedures.Token) call {
			db.does("UPDATE fence.lease SET request_id = $1 WHERE resource = 'r'", id)
			return acquire("r", holder.Owner, requested(id))
		}},
		{"a publish that is replayed", "replayed", func(db *Database, holder procedures.Token) call {
			db.session().gets("accepted", publish(holder, "{}", keyed("k")))
			return publish(holder, "{}", keyed("k"))
		}},
		{"a publish that is key_conflict", "rejected: key_conflict", func(db *Database, holder procedures.Token) call {
			db.session().gets("accepted", publish(holder, "{}", keyed("k")))
			return publish(holder, "another", keyed("k"))
		}},
		{"a publish that is stale_source", "rejected: stale_source", func(db *Database, holder procedures.Token) call {
			return publish(holder, "{}", fromSource(db.now().Add(-time.Hour), 1))
		}},
		{"a seize of another generation", "refused", func(_ *Database, holder procedures.Token) call {
			return seize("r", holder.Generation+1, "operator")
		}},
		{"a remove of a live lease", "held", func(_ *Database, holder procedures.Token) call {
			return remove("r", holder.Generation, "operator")
		}},
		{"a remove of another generation", "not_found", func(_ *Database, holder procedures.Token) call {
			return remove("r", holder.Generation+1, "operator")
		}},
		{"a diagnose", "unknown", func(_ *Database, holder procedures.Token) call {
			return diagnose(holder, nil)
		}},
	}
	for _, c := range timedCalls() {
		callers = append(callers, refusedCaller{
			c.name + " that is expired", c.refusal(procedures.Expired),
			func(db *Database, holder procedures.Token) call {
				db.expire("r")
				return c.with(holder)
			},
		})
	}
	for _, c := range tokenCalls() {
		callers = append(callers, refusedCaller{
			c.name + " that is superseded", c.refusal(procedures.Superseded),
			func(_ *Database, holder procedures.Token) call {
				return c.with(procedures.Token{Resource: "r", Owner: "stale", Generation: holder.Generation - 1})
			},
		})
	}
	return callers
}

func refusedCallerStarvesNobody(db *Database, r refusedCaller) {
	a, b, refused := db.session(), db.session(), db.session()
	a.takes("r")
	db.expire("r")
	holder := b.takes("r")
	c := r.call(db, holder)
	refused.begins().gets(r.verdict, c)

	b.impatient()
	b.gets("renewed", renew(holder))
	b.gets("ok", check(holder))
	b.gets("accepted", publish(holder, "b's"))
	db.expire("r")
	c2 := db.session().impatient()
	next := c2.takes("r")
	c2.gets("accepted", publish(next, "c's", thenRelease))
}

// refusalHoldsNoLock: whatever there is, another session locks it at once.
func refusalHoldsNoLock(db *Database, c call) {
	refused := db.session().begins()
	_, _ = c.make(db.ctx, refused.connection) // the verdict is another behaviour's matter
	db.session().impatient().begins().locks("r", lease, leaseTerm)
}

// endsWhenItIdles: a transaction that was refused while it held the row may idle for the holder's ttl of 30 s.
func endsWhenItIdles(refused *session) {
	refused.t.Helper()
	assert.Equal(refused.t, "30s", refused.has("idle_in_transaction_session_timeout"))
}

// overtakenCallerLetsRenew returns the one who was overtaken.
func overtakenCallerLetsRenew(db *Database, c tokenCall) *session {
	a, b := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	b.begins()
	holder := b.takes("r", lasting(minute/2))
	a.begins()
	waiting := a.waitsOn(c.with(token))
	b.commits()
	waiting.gets(c.refusal(procedures.Superseded))

	b.impatient().gets("renewed", renew(holder))
	return a
}

func overtakenRenewalLetsWork(db *Database) *session {
	a, b := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	b.begins()
	holder := b.takes("r", lasting(minute/2))
	a.begins()
	waiting := a.waitsOn(renew(token))
	b.commits()
	waiting.gets("refused: superseded")

	b.impatient()
	b.gets("ok", check(holder, procedures.Unexpired))
	b.gets("accepted", publish(holder, "b's"))
	return a
}

func lostAcquireLetsRenew(db *Database) *session {
	b, loser := db.session(), db.session()
	b.begins()
	holder := b.takes("r", lasting(minute/2))
	loser.begins()
	waiting := loser.waitsOn(acquire("r", "loser"))
	b.commits()
	waiting.gets("held")

	b.impatient().gets("renewed", renew(holder))
	return loser
}

func sameRefusalTwice(db *Database) {
	token := takenOver(db)
	db.session().gets("rejected: superseded", check(token)) // the row that the others would count in
	for range 3 {
		db.session().begins().impatient().gets("rejected: superseded", check(token))
	}
	again := db.session().impatient()
	again.gets("rejected: superseded", check(token))
	again.gets("rejected: superseded", check(token))
}

// fencedCalls are those that hold the row that says who until the transaction ends.
func fencedCalls() []tokenCall {
	return []tokenCall{
		{"check", checkDefault, "ok", "rejected", lease},
		{"require", requireDefault, "ok", "refused", lease},
		{"publish", publishSomething, "accepted", "rejected", lease},
	}
}

func fencedTransactionLetsRenew(db *Database, c tokenCall) {
	a, renewer := db.session(), db.session().impatient()
	token := a.takes("r")
	a.begins().gets(c.accepts, c.with(token))
	db.endLease("r")

	for range 3 {
		renewer.gets("renewed", renew(token))
	}
	db.endLease("r")
	got := a.gets("ok", check(token))
	assert.NotNil(db.t, got.LateMS)
	renewer.gets("renewed", renew(token))
	a.commits()
	a.gets("ok", check(token, procedures.Unexpired))
}

func takeOverWaitsForFencedTransaction(db *Database, c tokenCall) {
	a, b, impatient := db.session(), db.session(), db.session().impatient()
	token := a.takes("r")
	a.begins().gets(c.accepts, c.with(token))
	db.endLease("r")

	began := time.Now()
	impatient.gets("busy", acquire("r", "impatient"))
	assert.Less(db.t, time.Since(began), 4*time.Second, "the caller's own bound is smaller")
	waiting := b.waitsOn(acquire("r", "b"))
	a.commits()
	got := waiting.gets("acquired")
	assert.Equal(db.t, token.Generation+1, *got.Generation)
	a.gets(c.refusal(procedures.Superseded), c.with(token))
}

func stalledTransactionIsEnded(db *Database, c tokenCall) {
	a, b := db.session(), db.session()
	token := a.takes("r", lasting(200))
	a.begins().gets(c.accepts, c.with(token))
	db.endLease("r")

	waiting := b.waitsOn(acquire("r", "b"))
	got := waiting.gets("acquired")
	assert.Equal(db.t, token.Generation+1, *got.Generation)
	assert.Error(db.t, a.commit(db.ctx), "the stalled session was ended")
	assert.Empty(db.t, db.published("r"))
}

func idleBoundOfTheCallerStays(db *Database, c tokenCall) {
	const setting = "idle_in_transaction_session_timeout"
	a := db.session()
	token := a.takes("r")
	for _, one := range []struct{ of, within string }{
		{"0", "1min"},      // none: the ttl
		{"1h", "1min"},     // a larger one: the ttl
		{"500ms", "500ms"}, // a smaller one stays
	} {
		a.sets(setting, one.of)
		a.begins().gets(c.accepts, c.with(token))
		assert.Equal(db.t, one.within, a.has(setting), "with %s before", one.of)
		a.commits()
		assert.Equal(db.t, one.of, a.has(setting))
	}

	// A ttl beyond what the setting can say is as good as none.
	a.sets(setting, "0")
	a.gets("renewed", renewFor(token, tenYears))
	a.begins().gets(c.accepts, c.with(token))
	assert.Equal(db.t, "2147483647ms", a.has(setting))
	a.commits()
}

func takeOverGivesUp(db *Database) {
	const setting = "lock_timeout"
	a, none, long := db.session(), db.session(), db.session().sets(setting, "1h")
	r, s := a.takes("r"), a.takes("s")
	a.begins().gets("ok", check(r))
	a.gets("ok", check(s))
	db.endLease("r")
	db.endLease("s")

	began := time.Now()
	one, two := none.waitsOn(acquire("r", "none")), long.waitsOn(acquire("s", "long"))
	one.gets("busy")
	two.gets("busy")
	assert.WithinDuration(db.t, began.Add(5*time.Second), time.Now(), 2*time.Second)

	// Afterwards the caller's own bound holds again, also within its transaction.
	a.rollsBack()
	long.begins().gets("acquired", acquire("s", "long"))
	assert.Equal(db.t, "1h", long.has(setting))
	long.commits()
	assert.Equal(db.t, "1h", long.has(setting))
}

func interventionsGiveUp(db *Database) {
	a, impatient := db.session(), db.session().impatient()
	token := a.takes("r")
	a.begins().gets("ok", check(token))
	db.endLease("r")

	began := time.Now()
	impatient.gets("busy", seize("r", token.Generation, "operator"))
	impatient.gets("busy", remove("r", token.Generation, "operator"))
	impatient.gets("busy", raiseFloor("r", 10))
	assert.Less(db.t, time.Since(began), 4*time.Second, "the caller's own bound is smaller")
	a.commits()
	impatient.gets("raised", raiseFloor("r", 20))
	impatient.gets("seized", seize("r", token.Generation, "operator"))
}

func floorOfAllGivesUp(db *Database) {
	a, impatient := db.session(), db.session().impatient()
	a.begins().takes("s")
	impatient.gets("busy", raiseFloor("", 10))
	a.commits()
	impatient.gets("raised", raiseFloor("", 10))
}

func statusNamesTheBlocker(db *Database) {
	a := db.session()
	token := a.takes("r")
	blocker := func() (name *string) {
		db.reads(func(scan func(...any) error) error { return scan(&name) },
			"SELECT blocked_by_application FROM fence.lease_status WHERE resource = 'r'")
		return name
	}
	require.Nil(db.t, blocker())
	a.begins().gets("ok", check(token))
	require.NotNil(db.t, blocker())
	assert.Equal(db.t, a.name, *blocker())
	a.commits()
	assert.Nil(db.t, blocker(), fmt.Sprintf("%s has committed", a.name))
}
