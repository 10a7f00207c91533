package integration

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

// cell is one cell of diagnose's table: a state of the row, when the caller's own UPDATE was attempted, and
// what is proven then under each policy.
type cell struct {
	name            string
	row             func(db *Database) procedures.Token
	attempted       func(db *Database) *time.Time
	untilSuperseded string
	unexpired       string
}

func cells() []cell {
	return []cell{
		{"no row", neverAcquired, now, "unknown", "unknown"},
		{"no row any more", removedSince, now, "unknown", "unknown"},
		{"no row but a floor", onlyFloor, now, "unknown", "unknown"},

		{"taken over before the attempt", takenOver, now, "superseded", "superseded"},
		{"taken over at the very time of the attempt", takenOver, whenAcquired(0), "superseded", "superseded"},
		{"taken over after the attempt", takenOver, whenAcquired(-time.Microsecond), "unknown", "unknown"},
		{"taken over, no attempt given", takenOver, never, "unknown", "unknown"},
		{"taken over, attempt still to come", takenOver, inAnHour, "unknown", "unknown"},
		{"seized before the attempt", seizedAway, now, "superseded", "superseded"},
		{"seized after the attempt", seizedAway, whenAcquired(-time.Microsecond), "unknown", "unknown"},

		{"a generation never given out", ahead, now, "ahead_of_issuer", "ahead_of_issuer"},
		{"a generation never given out, no attempt given", ahead, never, "ahead_of_issuer", "ahead_of_issuer"},

		{"another owner's generation", otherOwner, now, "wrong_owner", "wrong_owner"},
		{"another owner's generation, no attempt given", otherOwner, never, "wrong_owner", "wrong_owner"},
		{"a seizure's generation", ofSeizure, now, "wrong_owner", "wrong_owner"},

		{"released before the attempt", releasedOwn, now, "released", "released"},
		{"released at the very time of the attempt", releasedOwn, whenReleased(0), "released", "released"},
		{"released after the attempt", releasedOwn, whenReleased(-time.Microsecond), "released", "unknown"},
		{"released, no attempt given", releasedOwn, never, "released", "unknown"},
		{"released, attempt still to come", releasedOwn, inAnHour, "released", "unknown"},

		{"run out", ranOut, now, "unknown", "expired"},
		{"run out, no attempt given", ranOut, never, "unknown", "expired"},
		{"alive and renewed after the attempt", renewedLate, whenRenewed(-time.Microsecond), "unknown", "expired"},
		{"alive and renewed at the very time of the attempt", renewedLate, whenRenewed(0), "unknown", "unknown"},
		{"alive and renewed before the attempt", renewedLate, now, "unknown", "unknown"},
		{"alive, no attempt given", renewedLate, never, "unknown", "unknown"},
		{"alive, attempt still to come", renewedLate, inAnHour, "unknown", "unknown"},
	}
}

func neverAcquired(*Database) procedures.Token {
	return procedures.Token{Resource: "r", Owner: "a", Generation: 1}
}

func removedSince(db *Database) procedures.Token {
	a := db.session()
	token := a.takes("r")
	a.gets("released", release(token))
	a.gets("removed", remove("r", token.Generation, "operator"))
	return token
}

func onlyFloor(db *Database) procedures.Token {
	token := removedSince(db)
	db.session().gets("raised", raiseFloor("r", 10))
	return token
}

func takenOver(db *Database) procedures.Token {
	token := db.session().takes("r")
	db.expire("r")
	db.session().takes("r")
	return token
}

func seizedAway(db *Database) procedures.Token {
	a := db.session()
	token := a.takes("r")
	a.gets("seized", seize("r", token.Generation, "operator"))
	return token
}

func ahead(db *Database) procedures.Token {
	token := db.session().takes("r")
	token.Generation++
	return token
}

func otherOwner(db *Database) procedures.Token {
	token := db.session().takes("r")
	token.Owner = "somebody else"
	return token
}

func ofSeizure(db *Database) procedures.Token {
	token := seizedAway(db)
	token.Generation = db.row("r").Generation
	return token
}

func releasedOwn(db *Database) procedures.Token {
	a := db.session()
	token := a.takes("r")
	a.gets("released", release(token))
	return token
}

func ranOut(db *Database) procedures.Token {
	token := db.session().takes("r")
	db.expire("r")
	return token
}

func renewedLate(db *Database) procedures.Token {
	a := db.session()
	token := a.takes("r")
	a.gets("renewed", renew(token))
	return token
}

func never(*Database) *time.Time { return nil }

func now(db *Database) *time.Time {
	now := db.now()
	return &now
}

func inAnHour(db *Database) *time.Time {
	later := db.now().Add(time.Hour)
	return &later
}

func whenAcquired(by time.Duration) func(*Database) *time.Time {
	return func(db *Database) *time.Time {
		at := db.row("r").AcquiredAt.Add(by)
		return &at
	}
}

func whenReleased(by time.Duration) func(*Database) *time.Time {
	return func(db *Database) *time.Time {
		at := db.row("r").ReleasedAt.Add(by)
		return &at
	}
}

func whenRenewed(by time.Duration) func(*Database) *time.Time {
	return func(db *Database) *time.Time {
		at := db.row("r").RenewedAt.Add(by)
		return &at
	}
}

func everyCell() (behaviours []behaviour) {
	for _, c := range cells() {
		behaviours = append(behaviours,
			that(c.name+" is "+c.untilSuperseded+" under until_superseded",
				func(db *Database) { explains(db, c, procedures.UntilSuperseded, c.untilSuperseded) }),
			that(c.name+" is "+c.unexpired+" under unexpired",
				func(db *Database) { explains(db, c, procedures.Unexpired, c.unexpired) }))
	}
	return behaviours
}

func explains(db *Database, c cell, policy, reason string) {
	token := c.row(db)
	attempted := c.attempted(db)
	rejections := db.count("rejection")

	// It waits for nobody.
	db.session().begins().locks("r", lease, leaseTerm)
	before := db.now()
	got := db.session().impatient().gets(reason, diagnose(token, attempted, policy))
	after := db.now()

	require.NotNil(db.t, got.Certain)
	assert.Equal(db.t, reason != procedures.Unknown, *got.Certain)
	require.NotNil(db.t, got.ObservedAt)
	assert.WithinRange(db.t, *got.ObservedAt, before, after)
	db.sawTheRow(got)
	assert.Equal(db.t, rejections, db.count("rejection"), "it explains, and records nothing")
}
