package integration

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// ending is how a session that made another wait for a row ends its transaction.
type ending struct {
	name string
	// holds is what it does to the row before, with the good token of the one who waits.
	holds func(blocker *session, token procedures.Token)
	ends  func(blocker *session)
}

// endings of a wait for the time row. After none of them has the token lost its worth.
func endingsOfTerm() []ending {
	return []ending{
		{"only locked it", func(b *session, _ procedures.Token) { b.locks("r", leaseTerm) }, (*session).commits},
		{"changed it and rolled back", func(b *session, token procedures.Token) {
			b.gets("released", release(token))
		}, (*session).rollsBack},
		{"changed it and committed", func(b *session, token procedures.Token) {
			b.gets("renewed", renewFor(token, 1))
		}, (*session).commits},
	}
}

// endings of a wait for the row that says who.
func endingsOfLease() []ending {
	return []ending{
		{"only locked it", func(b *session, _ procedures.Token) { b.locks("r", lease) }, (*session).commits},
		{"changed it and rolled back", func(b *session, token procedures.Token) {
			b.gets("accepted", publish(token, "never"))
		}, (*session).rollsBack},
		{"changed it and committed", func(b *session, token procedures.Token) {
			b.gets("accepted", publish(token, "before"))
		}, (*session).commits},
	}
}

func clockAfterTheWait() (behaviours []behaviour) {
	for _, e := range endingsOfTerm() {
		behaviours = append(behaviours,
			that("a renewal lasts for its whole ttl after it waited for one who "+e.name,
				func(db *Database) { renewalLastsFromItsEnd(db, e) }),
			that("an acquire gives out its whole ttl after it waited for the time row of one who "+e.name,
				func(db *Database) { acquireLastsFromItsEnd(db, e) }))
	}
	for _, e := range endingsOfLease() {
		behaviours = append(behaviours, that(
			"an acquire gives out its whole ttl after it waited for one who "+e.name,
			func(db *Database) { acquireLastsFromItsEnd(db, e) }))
		for _, c := range timedCalls() {
			behaviours = append(behaviours,
				that(c.name+" is refused when the lease runs out while it waits for one who "+e.name,
					func(db *Database) { expiresWhileWaiting(db, c, e) }),
				that(c.name+" is "+c.accepts+" when the lease is renewed while it waits for one who "+e.name,
					func(db *Database) { isRenewedWhileWaiting(db, c, e) }))
		}
		for _, c := range tokenCalls()[2:] { // those that tell how late they are
			behaviours = append(behaviours, that(
				c.name+" is late when the lease runs out while it waits for one who "+e.name,
				func(db *Database) { isLateAfterWaiting(db, c, e) }))
		}
	}
	return behaviours
}

// lasts demands that a lease was given for exactly ttl, counted from a moment after the given one.
func (d *Database) lasts(got answer, from time.Time, ttlMS int64) {
	d.t.Helper()
	ttl := time.Duration(ttlMS) * time.Millisecond
	require.NotNil(d.t, got.LeaseUntil)
	assert.WithinRange(d.t, *got.LeaseUntil, from.Add(ttl), d.now().Add(ttl))
	assert.Equal(d.t, ttlMS, *got.RemainingMS)
}

func renewalLastsFromItsEnd(db *Database, e ending) {
	a, blocker := db.session(), db.session()
	token := a.takes("r")
	blocker.begins()
	e.holds(blocker, token)

	waiting := a.waitsOn(renewFor(token, 5000))
	between := db.now()
	e.ends(blocker)

	got := waiting.gets("renewed")
	db.lasts(got, between, 5000)
	assert.WithinDuration(db.t, *got.LeaseUntil, db.row("r").LeaseUntil, 0)
}

func acquireLastsFromItsEnd(db *Database, e ending) {
	a, b, blocker := db.session(), db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	blocker.begins()
	e.holds(blocker, token)

	waiting := b.waitsOn(acquire("r", "b", lasting(5000)))
	between := db.now()
	db.waitUntil(between.Add(time.Millisecond)) // a renewal by the blocker is over
	e.ends(blocker)

	got := waiting.gets("acquired")
	db.lasts(got, between, 5000)
	assert.WithinDuration(db.t, *got.LeaseUntil, db.row("r").LeaseUntil, 0)
	assert.False(db.t, db.row("r").AcquiredAt.Before(between))
}

func expiresWhileWaiting(db *Database, c tokenCall, e ending) {
	a, blocker := db.session(), db.session()
	token := a.takes("r")
	blocker.begins()
	e.holds(blocker, token)

	waiting := a.waitsOn(c.with(token))
	db.endLease("r")
	between := db.now()
	e.ends(blocker)

	got := waiting.gets(c.refusal(procedures.Expired))
	require.NotNil(db.t, got.ObservedAt)
	assert.False(db.t, got.ObservedAt.Before(between))
	db.sawTheRow(got)
}

func isRenewedWhileWaiting(db *Database, c tokenCall, e ending) {
	a, blocker, renewer := db.session(), db.session(), db.session().impatient()
	token := a.takes("r")
	blocker.begins()
	e.holds(blocker, token)

	waiting := a.waitsOn(c.with(token))
	db.endLease("r")
	renewer.gets("renewed", renew(token))
	e.ends(blocker)

	assert.Nil(db.t, waiting.gets(c.accepts).LateMS)
}

func isLateAfterWaiting(db *Database, c tokenCall, e ending) {
	a, blocker := db.session(), db.session()
	token := a.takes("r")
	blocker.begins()
	e.holds(blocker, token)

	waiting := a.waitsOn(c.with(token))
	db.endLease("r")
	between := db.now()
	e.ends(blocker)

	got := waiting.gets(c.accepts)
	require.NotNil(db.t, got.LateMS, "counted from a clock before the wait")
	assert.Positive(db.t, *got.LateMS)
	if got.PublishedAt != nil {
		assert.False(db.t, got.PublishedAt.Before(between))
		assert.True(db.t, got.AttemptedAt.Before(between), "attempted_at is when the call began")
	}
}

func acquireSeesRenewalBesideFencedTransaction(db *Database) {
	a, renewer, b := db.session(), db.session().impatient(), db.session()
	token := a.takes("r")
	db.expire("r")
	a.begins().gets("ok", check(token))

	waiting := b.waitsOn(acquire("r", "b"))
	renewer.gets("renewed", renew(token))
	a.commits()

	got := waiting.gets("held")
	assert.Equal(db.t, token.Owner, *got.Holder)
	assert.Equal(db.t, token.Generation, db.row("r").Generation)
}

func acquireSeesRenewalItWaitedFor(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")
	a.begins().gets("renewed", renew(token))

	waiting := b.waitsOn(acquire("r", "b"))
	a.commits()

	got := waiting.gets("held")
	assert.Equal(db.t, token.Owner, *got.Holder)
	assert.Positive(db.t, *got.RemainingMS)
	a.gets("accepted", publish(token, "still mine"))
}

func acquireSeesTheWinnerRunOut(db *Database) {
	a, b, c := db.session(), db.session(), db.session()
	old := a.takes("r")
	db.expire("r")
	b.begins().gets("acquired", acquire("r", "b", lasting(1)))

	waiting := c.waitsOn(acquire("r", "c", lasting(5000)))
	between := db.now()
	db.waitUntil(between.Add(time.Millisecond))
	b.commits()

	got := waiting.gets("acquired")
	db.lasts(got, between, 5000)
	assert.Equal(db.t, old.Generation+2, *got.Generation)
}

func acquireSeesTheFirstRunOut(db *Database) {
	a, b := db.session(), db.session()
	a.begins().gets("acquired", acquire("r", "a", lasting(1)))

	waiting := b.waitsOn(acquire("r", "b", lasting(5000)))
	between := db.now()
	db.waitUntil(between.Add(time.Millisecond))
	a.commits()

	got := waiting.gets("acquired")
	db.lasts(got, between, 5000)
	assert.EqualValues(db.t, 2, *got.Generation)
}

func acquireSeesRelease(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r", lasting(1))
	db.expire("r")
	a.begins().gets("released", release(token))

	waiting := b.waitsOn(acquire("r", "b"))
	a.commits()

	got := waiting.gets("acquired")
	assert.Equal(db.t, token.Generation+1, *got.Generation)
}

func acquireSeesTheWinner(db *Database) {
	a, b, c := db.session(), db.session(), db.session()
	a.takes("r")
	db.expire("r")
	b.begins()
	winner := b.takes("r", saying(`{"pod": "b-1"}`))

	waiting := c.waitsOn(acquire("r", "c"))
	b.commits()

	got := waiting.gets("held")
	assert.Nil(db.t, got.Generation)
	assert.Equal(db.t, winner.Owner, *got.Holder)
	assert.JSONEq(db.t, `{"pod": "b-1"}`, string(got.Attributes))
}

func acquireAfterRolledBackFirst(db *Database) {
	a, b := db.session(), db.session()
	a.begins().takes("r")

	waiting := b.waitsOn(acquire("r", "b", lasting(5000)))
	between := db.now()
	a.rollsBack()

	got := waiting.gets("acquired")
	assert.EqualValues(db.t, 1, *got.Generation)
	db.lasts(got, between, 5000)
}
