package integration

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func acquireReplaysLive(db *Database) {
	a, id := db.session(), uuid.New()
	token := a.takes("r", requested(id), saying(`{"pod": "a-1"}`))
	got := a.gets("replayed", acquire("r", a.name, requested(id)))
	assert.Equal(db.t, token.Generation, *got.Generation)
	assert.Equal(db.t, a.name, *got.Holder)
	assert.WithinDuration(db.t, db.row("r").LeaseUntil, *got.LeaseUntil, 0)
	assert.LessOrEqual(db.t, *got.RemainingMS, minute)
	assert.Greater(db.t, *got.RemainingMS, minute/2)
	assert.JSONEq(db.t, `{"pod": "a-1"}`, string(got.Attributes))

	renewed := a.gets("renewed", renewFor(token, 10*minute))
	got = a.gets("replayed", acquire("r", a.name, requested(id)))
	assert.WithinDuration(db.t, *renewed.LeaseUntil, *got.LeaseUntil, 0)
	assert.Greater(db.t, *got.RemainingMS, minute)
}

func acquireReplayChangesNothing(db *Database) {
	a, id := db.session(), uuid.New()
	a.takes("r", requested(id))
	before := db.row("r")
	a.gets("replayed", acquire("r", a.name, requested(id), lasting(1), saying(`{"other": true}`)))
	assert.Equal(db.t, before, db.row("r"))
}

func acquireReplaysExpired(db *Database) {
	a, id := db.session(), uuid.New()
	token := a.takes("r", requested(id))
	db.expire("r")
	got := a.gets("replayed", acquire("r", a.name, requested(id)))
	assert.Equal(db.t, token.Generation, *got.Generation)
	assert.Zero(db.t, *got.RemainingMS)
	a.gets("renewed", renew(token))
}

func acquireReplaysReleased(db *Database) {
	a, id := db.session(), uuid.New()
	token := a.takes("r", requested(id))
	a.gets("released", release(token))
	got := a.gets("replayed", acquire("r", a.name, requested(id)))
	assert.Equal(db.t, token.Generation, *got.Generation)
	assert.Zero(db.t, *got.RemainingMS)
	assert.Nil(db.t, got.Holder)
}

func acquireAfterSuperseded(db *Database) {
	a, b, id := db.session(), db.session(), uuid.New()
	a.takes("r", requested(id))
	db.expire("r")
	other := b.takes("r")
	a.gets("held", acquire("r", a.name, requested(id)))

	b.gets("released", release(other))
	got := a.gets("acquired", acquire("r", a.name, requested(id)))
	assert.Equal(db.t, other.Generation+1, *got.Generation)
}

func acquireAfterSeizure(db *Database) {
	a, id := db.session(), uuid.New()
	token := a.takes("r", requested(id))
	a.gets("seized", seize("r", token.Generation, "operator"))
	got := a.gets("acquired", acquire("r", a.name, requested(id)))
	assert.Equal(db.t, token.Generation+2, *got.Generation)
}

func acquireOfAnotherOwner(db *Database) {
	a, b, id := db.session(), db.session(), uuid.New()
	token := a.takes("r", requested(id))
	got := b.gets("held", acquire("r", b.name, requested(id)))
	assert.Nil(db.t, got.Generation)
	a.gets("released", release(token))
	b.gets("acquired", acquire("r", b.name, requested(id)))
}

func acquireIsNotReentrant(db *Database) {
	a := db.session()
	a.takes("r", requested(uuid.New()))
	got := a.gets("held", acquire("r", a.name))
	assert.Equal(db.t, a.name, *got.Holder)
	assert.Nil(db.t, got.Generation)
	a.gets("held", acquire("r", a.name, requested(uuid.New())))

	// Nor does an acquisition without an id answer to one.
	a.takes("s")
	a.gets("held", acquire("s", a.name, requested(uuid.New())))
	db.expire("s")
	a.gets("acquired", acquire("s", a.name))
}

func acquireReplaysWithoutLock(db *Database) {
	a, id := db.session(), uuid.New()
	a.takes("r", requested(id))
	db.expire("r")
	db.session().begins().locks("r", lease, leaseTerm)
	a.impatient().gets("replayed", acquire("r", a.name, requested(id)))
}

func acquireOverlapsItself(db *Database) {
	first, again, id := db.session(), db.session(), uuid.New()
	db.session().takes("r")
	db.expire("r")
	granted := first.begins().gets("acquired", acquire("r", "a", requested(id)))
	waiting := again.waitsOn(acquire("r", "a", requested(id)))
	first.commits()
	assert.Equal(db.t, *granted.Generation, *waiting.gets("replayed").Generation)
}

func firstAcquireOverlapsItself(db *Database) {
	first, again, id := db.session(), db.session(), uuid.New()
	granted := first.begins().gets("acquired", acquire("r", "a", requested(id)))
	waiting := again.waitsOn(acquire("r", "a", requested(id)))
	first.commits()
	assert.Equal(db.t, *granted.Generation, *waiting.gets("replayed").Generation)
}

func acquireFromManyClients(db *Database) {
	const clients = 8
	id := uuid.New()
	outcomes := make([]string, clients)
	together(db.manySessions(clients), func(i int, s *session) {
		got, err := acquire("r", "a", requested(id)).make(db.ctx, s.connection)
		outcomes[i] = fmt.Sprint(verdict(got, err), " ", value(got.Generation))
	})
	assert.ElementsMatch(db.t, append(repeat("replayed 1", clients-1), "acquired 1"), outcomes)
}

func publishReplays(db *Database) {
	a := db.session()
	token := a.takes("r")
	first := a.gets("accepted", publish(token, "{}", keyed("k")))
	a.gets("accepted", publish(token, "newer"))
	before := db.row("r")

	again := a.gets("replayed", publish(token, "{}", keyed("k")))
	assert.Equal(db.t, first.Revision, again.Revision)
	assert.WithinDuration(db.t, *first.PublishedAt, *again.PublishedAt, 0)
	assert.Equal(db.t, first.LateMS, again.LateMS)
	assert.Equal(db.t, before, db.row("r"))
	assert.Equal(db.t, "newer", db.published("r")[0].Payload)
}

func conflicts(payload string, options ...func(*procedures.PublishParams)) func(*Database) {
	return func(db *Database) {
		a := db.session()
		token := a.takes("r")
		a.gets("accepted", publish(token, "{}", keyed("k")))
		before := db.row("r")
		got := a.gets("rejected: key_conflict", publish(token, payload, append(options, keyed("k"))...))
		db.sawTheRow(got)
		assert.Equal(db.t, before, db.row("r"))
		assert.Equal(db.t, "{}", db.published("r")[0].Payload)
		a.gets("replayed", publish(token, "{}", keyed("k")))
	}
}

func publishReplaysAfterTakeOver(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	first := a.gets("accepted", publish(token, "{}", keyed("k")))
	db.expire("r")
	b.gets("accepted", publish(b.takes("r"), "b's"))

	again := a.gets("replayed", publish(token, "{}", keyed("k")))
	assert.Equal(db.t, first.Revision, again.Revision)
	a.gets("rejected: superseded", publish(token, "another", keyed("k")))
	assert.Equal(db.t, "b's", db.published("r")[0].Payload)
}

func publishReplaysAfterExpiry(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("accepted", publish(token, "{}", keyed("k"), whileUnexpired))
	db.expire("r")
	a.gets("replayed", publish(token, "{}", keyed("k"), whileUnexpired))
	a.gets("rejected: expired", publish(token, "{}", keyed("another"), whileUnexpired))
}

func publishReplaysStale(db *Database) {
	a := db.session()
	token := a.takes("r")
	asOf := db.now()
	a.gets("accepted", publish(token, "{}", keyed("k"), fromSource(asOf, minute)))
	a.gets("replayed", publish(token, "{}", keyed("k"), fromSource(asOf.Add(-time.Hour), 1)))
}

func publishReplaysAfterRelease(db *Database) {
	a := db.session()
	token := a.takes("r")
	first := a.gets("accepted", publish(token, "{}", keyed("k"), thenRelease))
	again := a.gets("replayed", publish(token, "{}", keyed("k"), thenRelease))
	assert.Equal(db.t, first.Revision, again.Revision)
	a.gets("rejected: released", publish(token, "{}", keyed("another"), thenRelease))
}

func publishOverlapsItself(db *Database) {
	a, retry := db.session(), db.session()
	token := a.takes("r")
	first := a.begins().gets("accepted", publish(token, "{}", keyed("k"), thenRelease))
	waiting := retry.waitsOn(publish(token, "{}", keyed("k"), thenRelease))
	a.commits()
	assert.Equal(db.t, first.Revision, waiting.gets("replayed").Revision)
}

// publishReadsLeaseBeforeKey makes the retry's first read of the lease wait until the first call has
// committed. Had it read the key before, it would see a released lease and no key.
func publishReadsLeaseBeforeKey(db *Database) {
	a, wall, retry := db.session(), db.session(), db.session()
	token := a.takes("r")
	a.begins().gets("accepted", publish(token, "{}", keyed("k"), thenRelease))
	walled := wall.begins().waitsOn(lockTable(lease))
	waiting := retry.waitsOn(publish(token, "{}", keyed("k"), thenRelease))

	a.commits()
	walled.gets("done")
	wall.rollsBack()
	waiting.gets("replayed")
}

func publishOverlapsConflict(db *Database) {
	a, other := db.session(), db.session()
	token := a.takes("r")
	a.begins().gets("accepted", publish(token, "{}", keyed("k")))
	waiting := other.waitsOn(publish(token, "another", keyed("k")))
	a.commits()
	waiting.gets("rejected: key_conflict")
	assert.Equal(db.t, "{}", db.published("r")[0].Payload)
}

func publishReplaysWithoutLock(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("accepted", publish(token, "{}", keyed("k")))
	db.session().begins().locks("r", lease, leaseTerm)
	a.impatient()
	a.gets("replayed", publish(token, "{}", keyed("k")))
	a.gets("rejected: key_conflict", publish(token, "another", keyed("k")))
}

func publishInNewGeneration(db *Database) {
	a := db.session()
	old := a.takes("r")
	first := a.gets("accepted", publish(old, "{}", keyed("k")))
	a.gets("released", release(old))
	token := a.takes("r")
	got := a.gets("accepted", publish(token, "{}", keyed("k")))
	assert.Equal(db.t, *first.Revision+1, *got.Revision)
	a.gets("accepted", publish(a.takes("s"), "{}", keyed("k")))
}

func refusedPublishIsNotRemembered(db *Database) {
	a := db.session()
	token := a.takes("r")
	stale := db.now().Add(-time.Hour)
	a.gets("rejected: stale_source", publish(token, "{}", keyed("k"), fromSource(stale, 1)))
	a.gets("accepted", publish(token, "another", keyed("k")))
}

func rolledBackPublishIsNotRemembered(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.begins().gets("accepted", publish(token, "{}", keyed("k")))
	a.rollsBack()
	got := a.gets("accepted", publish(token, "another", keyed("k")))
	assert.EqualValues(db.t, 1, *got.Revision)
}

func publishFromManyClients(db *Database) {
	const clients = 8
	token := db.session().takes("r")
	outcomes := make([]string, clients)
	together(db.manySessions(clients), func(i int, s *session) {
		got, err := publish(token, "{}", keyed("k")).make(db.ctx, s.connection)
		outcomes[i] = fmt.Sprint(verdict(got, err), " ", value(got.Revision))
	})
	assert.ElementsMatch(db.t, append(repeat("replayed 1", clients-1), "accepted 1"), outcomes)
}

func releaseReplays(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("released", release(token))
	before := db.row("r")
	a.gets("replayed", release(token))
	assert.Equal(db.t, before, db.row("r"))
	assert.Equal(db.t, token.Owner, *before.Owner, "the owner stays in the row")
	assert.Empty(db.t, db.rejections("r"))
}

func releaseAfterTakeOver(db *Database) {
	a, b := db.session(), db.session()
	old := a.takes("r")
	a.gets("released", release(old))
	token := b.takes("r")
	a.gets("refused: superseded", release(old))
	assert.Nil(db.t, db.row("r").ReleasedAt)
	b.gets("ok", check(token, procedures.Unexpired))
}

func renewRepeats(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("renewed", renew(token))
	got := a.gets("renewed", renewFor(token, 5000))
	assert.EqualValues(db.t, 5000, *got.RemainingMS)
	assert.Less(db.t, db.row("r").LeaseUntil.Sub(db.now()), 6*time.Second)

	db.expire("r")
	a.gets("renewed", renew(token))
	a.gets("ok", check(token, procedures.Unexpired))
	assert.EqualValues(db.t, 3, db.row("r").Renewals)
	assert.Equal(db.t, token.Generation, db.row("r").Generation)
}

func seizeReplays(db *Database) {
	a := db.session()
	token := a.takes("r")
	first := a.gets("seized", seize("r", token.Generation, "operator"))
	assert.Equal(db.t, token.Generation+1, *first.Generation)
	assert.Equal(db.t, token.Owner, *first.PreviousOwner)

	again := a.gets("replayed", seize("r", token.Generation, "operator"))
	assert.Equal(db.t, first.Generation, again.Generation)
	assert.Equal(db.t, first.PreviousOwner, again.PreviousOwner)

	next := a.takes("r")
	assert.Equal(db.t, *first.Generation+1, next.Generation)
	again = a.gets("replayed", seize("r", token.Generation, "operator"))
	assert.Equal(db.t, first.Generation, again.Generation)
	a.gets("ok", check(next, procedures.Unexpired))
}

func seizeByAnother(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("seized", seize("r", token.Generation, "operator"))
	got := a.gets("refused", seize("r", token.Generation, "another operator"))
	assert.Nil(db.t, got.Generation)
	db.sawTheRow(got)
	a.gets("refused", seize("r", token.Generation+2, "operator"))
	a.gets("refused", seize("unknown", 1, "operator"))
}

func seizeOverlapsItself(db *Database) {
	first, again, other := db.session(), db.session(), db.session()
	token := db.session().takes("r")
	seized := first.begins().gets("seized", seize("r", token.Generation, "operator"))
	waiting := again.waitsOn(seize("r", token.Generation, "operator"))
	refused := other.waitsOn(seize("r", token.Generation, "another operator"))
	first.commits()
	assert.Equal(db.t, seized.Generation, waiting.gets("replayed").Generation)
	db.sawTheRow(refused.gets("refused"))
}

func removeReplays(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("held", remove("r", token.Generation, "operator"))
	a.gets("released", release(token))
	first := a.gets("removed", remove("r", token.Generation, "operator"))
	require.NotNil(db.t, first.FloorAfter)
	assert.Equal(db.t, token.Generation, *first.FloorAfter)

	again := a.gets("removed", remove("r", token.Generation, "operator"))
	assert.Equal(db.t, first.FloorAfter, again.FloorAfter)
	next := a.takes("r")
	a.gets("removed", remove("r", token.Generation, "operator"))
	a.gets("ok", check(next))
}

func removeByAnother(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("not_found", remove("r", token.Generation+1, "operator"))
	a.gets("released", release(token))
	a.gets("removed", remove("r", token.Generation, "operator"))
	got := a.gets("not_found", remove("r", token.Generation, "another operator"))
	assert.Nil(db.t, got.FloorAfter)
	a.gets("not_found", remove("unknown", 1, "operator"))
}

func raiseFloorRepeats(db *Database) {
	a := db.session()
	for _, resource := range []string{"", "r"} {
		got := a.gets("raised", raiseFloor(resource, 10))
		assert.EqualValues(db.t, []int64{0, 10}, []int64{*got.FloorBefore, *got.FloorAfter})
		got = a.gets("unchanged", raiseFloor(resource, 10))
		assert.EqualValues(db.t, []int64{10, 10}, []int64{*got.FloorBefore, *got.FloorAfter})
		got = a.gets("unchanged", raiseFloor(resource, 3))
		assert.EqualValues(db.t, []int64{10, 10}, []int64{*got.FloorBefore, *got.FloorAfter})
	}
}
