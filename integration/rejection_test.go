package integration

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func everyRefusalIsKept() (behaviours []behaviour) {
	for _, c := range append(tokenCalls(), timedCalls()...) {
		if c.row == lease && c.refuses == "refused" && c.name != "release" {
			continue // require: its error undoes the record
		}
		behaviours = append(behaviours, that(
			"a refusal of "+c.name+" is kept with what it saw",
			func(db *Database) { keepsRefusal(db, c) }))
	}
	return behaviours
}

func operation(c tokenCall) string { return c.with(procedures.Token{}).name }

func keepsRefusal(db *Database, c tokenCall) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	holder := db.session().takes("r")

	got := a.gets(c.refusal(procedures.Superseded), c.with(token))
	kept := db.rejections("r")
	require.Len(db.t, kept, 1)
	assert.Equal(db.t, rejection{
		Operation: operation(c), Reason: procedures.Superseded, Generation: token.Generation, Owner: token.Owner, Occurrences: 1,
		FirstAt: kept[0].FirstAt, LastAt: kept[0].FirstAt, Observation: kept[0].Observation,
	}, kept[0])
	assert.WithinDuration(db.t, *got.ObservedAt, kept[0].FirstAt, 0)
	assert.WithinDuration(db.t, *got.ObservedAt, *kept[0].ObservedAt, 0)
	assert.Equal(db.t, holder.Generation, *kept[0].ObservedGeneration)
	assert.Equal(db.t, holder.Owner, *kept[0].ObservedOwner)
	assert.WithinDuration(db.t, db.row("r").LeaseUntil, *kept[0].ObservedLeaseUntil, 0)
}

func countsRepeats(db *Database) {
	token := takenOver(db)
	a := db.session()
	for range 5 {
		a.gets("rejected: superseded", check(token))
	}
	db.age("r", 30*time.Second)
	last := db.session().gets("rejected: superseded", check(token))

	kept := db.rejections("r")
	require.Len(db.t, kept, 1)
	assert.EqualValues(db.t, 6, kept[0].Occurrences)
	assert.WithinDuration(db.t, *last.ObservedAt, kept[0].LastAt, 0)
	assert.WithinDuration(db.t, *last.ObservedAt, *kept[0].ObservedAt, 0)
	assert.Greater(db.t, kept[0].LastAt.Sub(kept[0].FirstAt), 29*time.Second)
	assert.WithinDuration(db.t, db.row("r").LeaseUntil, *kept[0].ObservedLeaseUntil, 0)
}

func beginsAnotherRow(db *Database) {
	token := takenOver(db)
	a := db.session()
	a.gets("rejected: superseded", check(token))
	a.gets("rejected: superseded", check(token))
	db.age("r", 61*time.Second)
	a.gets("rejected: superseded", check(token))
	a.gets("rejected: superseded", check(token))
	a.gets("rejected: superseded", check(token))

	kept := db.rejections("r")
	require.Len(db.t, kept, 2)
	assert.EqualValues(db.t, []int64{2, 3}, []int64{kept[0].Occurrences, kept[1].Occurrences})
}

func keepsApart(db *Database) {
	a := db.session()
	token := takenOver(db)
	current := db.row("r").Generation
	with := func(owner string, generation int64) procedures.Token {
		return procedures.Token{Resource: "r", Owner: owner, Generation: generation}
	}
	a.gets("rejected: superseded", check(token))
	a.gets("rejected: superseded", publish(token, "{}"))
	a.gets("refused: superseded", renew(token))
	a.gets("refused: superseded", release(token))
	a.gets("rejected: superseded", check(with("another", token.Generation)))
	a.gets("rejected: wrong_owner", check(with("another", current)))
	a.gets("rejected: ahead_of_issuer", check(with("another", current+1)))
	kept := db.rejections("r")
	assert.Len(db.t, kept, 7)
	for _, one := range kept {
		assert.EqualValues(db.t, 1, one.Occurrences, one)
	}
}

func rolledBackRefusal(db *Database) {
	token := takenOver(db)
	a := db.session()
	a.begins().gets("rejected: superseded", check(token))
	a.rollsBack()
	assert.Empty(db.t, db.rejections("r"))

	a.begins().gets("rejected: superseded", check(token))
	a.commits()
	assert.Len(db.t, db.rejections("r"), 1)
}

func undecidedRefusal(db *Database) {
	token := takenOver(db)
	a, b := db.session(), db.session().impatient()
	a.gets("rejected: superseded", check(token))
	a.begins().gets("rejected: superseded", check(token))
	b.gets("rejected: superseded", check(token))
	a.commits()
	var total int64
	for _, one := range db.rejections("r") {
		total += one.Occurrences
	}
	assert.EqualValues(db.t, 3, total)
}

func noRefusal(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("held", acquire("r", "b"))
	a.gets("unknown", diagnose(token, nil))
	a.gets("accepted", publish(token, "{}", keyed("k")))
	a.gets("replayed", publish(token, "{}", keyed("k")))
	a.gets("refused", seize("r", 7, "operator"))
	a.gets("not_found", remove("r", 7, "operator"))
	a.gets("released", release(token))
	a.gets("replayed", release(token))
	a.gets("refused: released", requires(token))
	a.gets("invalid_argument: ttl_ms", renewFor(token, 0))
	assert.Zero(db.t, db.count("rejections"))
}

func byReason(db *Database) {
	a := db.session()
	token := takenOver(db)
	for range 3 {
		a.gets("rejected: superseded", check(token))
	}
	a.gets("rejected: not_found", check(procedures.Token{Resource: "s", Owner: "a", Generation: 1}))
	a.gets("rejected: not_found", check(procedures.Token{Resource: "t", Owner: "a", Generation: 1}))
	a.gets("rejected: not_found", check(procedures.Token{Resource: "t", Owner: "b", Generation: 1}))
	type line struct {
		operation, reason      string
		occurrences, resources int64
	}
	var lines []line
	db.reads(func(scan func(...any) error) error {
		var l line
		err := scan(&l.operation, &l.reason, &l.occurrences, &l.resources)
		lines = append(lines, l)
		return err
	}, `SELECT operation, reason, sum(occurrences), max(resources)
	      FROM fence.rejections_by_reason GROUP BY operation, reason ORDER BY reason`)
	assert.Equal(db.t, []line{{"check", "not_found", 3, 2}, {"check", "superseded", 3, 1}}, lines)

	db.age("r", 2*time.Hour)
	a.gets("rejected: superseded", check(token))
	var hours int
	db.reads(func(scan func(...any) error) error { return scan(&hours) },
		"SELECT count(*) FROM fence.rejections_by_reason WHERE reason = 'superseded'")
	assert.Equal(db.t, 2, hours)
}

func showsLate(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	got := a.gets("accepted", publish(token, "{}"))
	a.gets("accepted", publish(token, "newer"))
	var found int
	db.reads(func(scan func(...any) error) error {
		var revision, generation, late int64
		var owner string
		var at time.Time
		err := scan(&revision, &generation, &owner, &late, &at)
		found++
		if revision == *got.Revision {
			assert.Equal(db.t, token.Generation, generation)
			assert.Equal(db.t, token.Owner, owner)
			assert.Equal(db.t, *got.LateMS, late)
			assert.WithinDuration(db.t, *got.PublishedAt, at, 0)
		}
		return err
	}, "SELECT revision, generation, owner, late_ms, published_at FROM fence.late_publications")
	assert.Equal(db.t, 2, found)
}
