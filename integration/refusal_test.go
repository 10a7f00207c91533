package integration

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// tokenCall is a routine that a token is presented to, and that takes effect only if the token counts.
type tokenCall struct {
	name    string
	with    func(procedures.Token) call
	accepts string // the outcome when the token counts
	refuses string // the outcome when it does not
	row     string // the row that it locks, and waits for
}

func tokenCalls() []tokenCall {
	return []tokenCall{
		{"renew", renew, "renewed", "refused", leaseTerm},
		{"release", release, "released", "refused", lease},
		{"publish", publishSomething, "accepted", "rejected", lease},
		{"publish then release", publishAndRelease, "accepted", "rejected", lease},
		{"check", checkDefault, "ok", "rejected", lease},
		{"require", requireDefault, "ok", "refused", lease},
	}
}

// timedCalls are those that policy unexpired makes depend on the clock.
func timedCalls() []tokenCall {
	return []tokenCall{
		{"publish while unexpired", publishUnexpired, "accepted", "rejected", lease},
		{"check while unexpired", checkUnexpired, "ok", "rejected", lease},
		{"require while unexpired", requireUnexpired, "ok", "refused", lease},
	}
}

func publishSomething(token procedures.Token) call  { return publish(token, "something") }
func publishAndRelease(token procedures.Token) call { return publish(token, "something", thenRelease) }
func publishUnexpired(token procedures.Token) call {
	return publish(token, "something", whileUnexpired)
}
func checkDefault(token procedures.Token) call     { return check(token) }
func checkUnexpired(token procedures.Token) call   { return check(token, procedures.Unexpired) }
func requireDefault(token procedures.Token) call   { return requires(token) }
func requireUnexpired(token procedures.Token) call { return requires(token, procedures.Unexpired) }

// refusal is the verdict of a call that refuses for a reason. Only release has a better answer to "released
// before" than a refusal: it was done.
func (c tokenCall) refusal(reason string) string {
	if c.name == "release" && reason == procedures.WasReleased {
		return "replayed"
	}
	return c.refuses + ": " + reason
}

// situation is a state of a resource in which a token does not count.
type situation struct {
	name   string
	reason string
	token  func(db *Database) procedures.Token
}

func situations() []situation {
	token := func(owner string, generation int64) procedures.Token {
		return procedures.Token{Resource: "r", Owner: owner, Generation: generation}
	}
	return []situation{
		{"of a name that was never acquired", procedures.NotFound, func(*Database) procedures.Token {
			return token("a", 1)
		}},
		{"of a name that was removed", procedures.NotFound, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			a.gets("released", release(old))
			a.gets("removed", remove("r", old.Generation, "operator"))
			return old
		}},
		{"of a name that was removed and has got a floor", procedures.NotFound, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			a.gets("released", release(old))
			a.gets("removed", remove("r", old.Generation, "operator"))
			a.gets("raised", raiseFloor("r", 10))
			return old
		}},
		{"after a take-over", procedures.Superseded, func(db *Database) procedures.Token {
			old := db.session().takes("r")
			db.expire("r")
			db.session().takes("r")
			return old
		}},
		{"after a release and a take-over by the same owner", procedures.Superseded, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			a.gets("released", release(old))
			a.takes("r")
			return old
		}},
		{"after a take-over that was released", procedures.Superseded, func(db *Database) procedures.Token {
			a, b := db.session(), db.session()
			old := a.takes("r")
			db.expire("r")
			b.gets("released", release(b.takes("r")))
			return old
		}},
		{"after a seizure", procedures.Superseded, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			a.gets("seized", seize("r", old.Generation, "operator"))
			return old
		}},
		{"with a generation that was never given out", procedures.AheadOfIssuer, func(db *Database) procedures.Token {
			a := db.session().takes("r")
			return token(a.Owner, a.Generation+1)
		}},
		{"with another owner's name", procedures.WrongOwner, func(db *Database) procedures.Token {
			return token("somebody else", db.session().takes("r").Generation)
		}},
		{"with the generation of a seizure", procedures.WrongOwner, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			return token(old.Owner, *a.gets("seized", seize("r", old.Generation, "operator")).Generation)
		}},
		{"after its release", procedures.WasReleased, func(db *Database) procedures.Token {
			a := db.session()
			old := a.takes("r")
			a.gets("released", release(old))
			return old
		}},
	}
}

func refusalsOfTokens() (behaviours []behaviour) {
	for _, c := range tokenCalls() {
		for _, s := range situations() {
			behaviours = append(behaviours, that(
				c.name+" "+s.name+" is "+c.refusal(s.reason),
				func(db *Database) { refusesAtOnce(db, c, s.reason, s.token(db)) }))
		}
	}
	return behaviours
}

func refusalsByTheClock() (behaviours []behaviour) {
	for _, c := range timedCalls() {
		behaviours = append(behaviours, that(
			c.name+" of a lease that has run out is "+c.refusal(procedures.Expired),
			func(db *Database) {
				token := db.session().takes("r")
				db.expire("r")
				refusesAtOnce(db, c, procedures.Expired, token)
			}))
	}
	return behaviours
}

func refusesAtOnce(db *Database, c tokenCall, reason string, token procedures.Token) {
	holder := db.session().begins()
	holder.locks("r", lease, leaseTerm)
	caller := db.session().impatient()

	before := db.now()
	got := caller.gets(c.refusal(reason), c.with(token))
	after := db.now()

	if got.Outcome == "replayed" {
		require.Zero(db.t, got.Observation, "there is nothing to explain")
		return
	}
	require.NotNil(db.t, got.ObservedAt)
	assert.WithinRange(db.t, *got.ObservedAt, before, after)
	db.sawTheRow(got)
}

// sawTheRow demands that an observation shows the row as it is.
func (d *Database) sawTheRow(got answer) {
	d.t.Helper()
	if d.countOf("r") == 0 {
		assert.Nil(d.t, got.ObservedGeneration)
		assert.Nil(d.t, got.ObservedOwner)
		assert.Nil(d.t, got.ObservedLeaseUntil)
		return
	}
	row := d.row("r")
	require.NotNil(d.t, got.ObservedGeneration)
	assert.Equal(d.t, row.Generation, *got.ObservedGeneration)
	assert.Equal(d.t, row.Owner, got.ObservedOwner)
	require.NotNil(d.t, got.ObservedLeaseUntil)
	assert.WithinDuration(d.t, row.LeaseUntil, *got.ObservedLeaseUntil, 0)
}

// countOf counts a resource's leases: one or none.
func (d *Database) countOf(resource string) (n int) {
	d.t.Helper()
	d.reads(func(scan func(...any) error) error { return scan(&n) },
		"SELECT count(*) FROM fence.lease WHERE resource = $1", resource)
	return n
}

// event is what another session does while a call with a good token waits for the row: it decides how the
// call ends if it commits, and changes nothing if it rolls back.
type event struct {
	name    string
	reason  string
	happens func(other *session, token procedures.Token)
}

func events() []event {
	return []event{
		{"a take-over", procedures.Superseded, func(other *session, _ procedures.Token) {
			other.takes("r")
		}},
		{"a seizure", procedures.Superseded, func(other *session, token procedures.Token) {
			other.gets("seized", seize("r", token.Generation, "operator"))
		}},
		{"a removal", procedures.NotFound, func(other *session, token procedures.Token) {
			other.gets("removed", remove("r", token.Generation, "operator"))
		}},
		{"its release", procedures.WasReleased, func(other *session, token procedures.Token) {
			other.gets("released", release(token))
		}},
		{"its publish then release", procedures.WasReleased, func(other *session, token procedures.Token) {
			other.gets("accepted", publish(token, "the last", thenRelease))
		}},
	}
}

func refusalsAfterEvents() (behaviours []behaviour) {
	for _, c := range tokenCalls() {
		for _, e := range events() {
			behaviours = append(behaviours,
				that(c.name+" that waited for "+e.name+" is "+c.refusal(e.reason),
					func(db *Database) { refusesAfterWaiting(db, c, e) }),
				that(c.name+" that waited for "+e.name+" which was rolled back is "+c.accepts,
					func(db *Database) { acceptsAfterWaiting(db, c, e) }))
		}
	}
	return behaviours
}

func refusalsAfterRemoval() (behaviours []behaviour) {
	for _, c := range tokenCalls() {
		behaviours = append(behaviours,
			that(c.name+" that waited for a removal and a new lease of the name is "+c.refusal(procedures.Superseded),
				func(db *Database) {
					findsNewRowAfterWaiting(db, c, acquire("r", "b"), procedures.Superseded)
				}),
			that(c.name+" that waited for a removal and a new floor of the name is "+c.refusal(procedures.NotFound),
				func(db *Database) {
					findsNewRowAfterWaiting(db, c, raiseFloor("r", 100), procedures.NotFound)
				}))
	}
	return behaviours
}

func refusesAfterWaiting(db *Database, c tokenCall, e event) {
	a, other := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")

	other.begins()
	e.happens(other, token)
	waiting := a.waitsOn(c.with(token))
	between := db.now()
	other.commits()
	got := waiting.gets(c.refusal(e.reason))

	if got.Outcome == "replayed" {
		return
	}
	require.NotNil(db.t, got.ObservedAt)
	assert.False(db.t, got.ObservedAt.Before(between), "decided after the wait")
	db.sawTheRow(got)
}

func acceptsAfterWaiting(db *Database, c tokenCall, e event) {
	a, other := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")

	other.begins()
	e.happens(other, token)
	waiting := a.waitsOn(c.with(token))
	other.rollsBack()
	waiting.gets(c.accepts)
}

// findsNewRowAfterWaiting: the row that the token belongs to is gone, and so is the lock that was waited for. What
// has its name by now decides.
func findsNewRowAfterWaiting(db *Database, c tokenCall, then call, reason string) {
	a, other := db.session(), db.session()
	token := a.takes("r")
	db.expire("r")

	other.begins()
	other.gets("removed", remove("r", token.Generation, "operator"))
	other.asks(then)
	waiting := a.waitsOn(c.with(token))
	other.commits()
	got := waiting.gets(c.refusal(reason))
	require.NotNil(db.t, got.ObservedGeneration)
	assert.NotEqual(db.t, token.Generation, *got.ObservedGeneration)

	a.gets(c.refusal(reason), c.with(token))
}
