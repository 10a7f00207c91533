package integration

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/procedures"
)

func publishCounts(db *Database) {
	a := db.session()
	token := a.takes("r")
	for revision, payload := range []string{"first", "second", "third"} {
		before := db.now()
		got := a.gets("accepted", publish(token, payload))
		assert.EqualValues(db.t, revision+1, *got.Revision)
		assert.WithinRange(db.t, *got.PublishedAt, before, db.now())
		assert.WithinRange(db.t, *got.AttemptedAt, before, *got.PublishedAt)
		assert.Zero(db.t, got.Observation)

		current := db.published("r")
		require.Len(db.t, current, 1)
		assert.Equal(db.t, publication{
			Revision: *got.Revision, Generation: token.Generation, Owner: token.Owner, ContentType: "application/json",
			Payload: payload, PublishedAt: current[0].PublishedAt,
		}, current[0])
		assert.WithinDuration(db.t, *got.PublishedAt, current[0].PublishedAt, 0)
	}
	row := db.row("r")
	assert.EqualValues(db.t, 3, row.Revision)
	assert.Equal(db.t, token.Generation, row.Accepted)
}

func revisionsGoOn(db *Database) {
	a, b := db.session(), db.session()
	a.gets("accepted", publish(a.takes("r"), "a's"))
	db.expire("r")
	token := b.takes("r")
	assert.EqualValues(db.t, 1, db.row("r").Accepted, "who merely acquired has had nothing accepted")
	got := b.gets("accepted", publish(token, "b's"))
	assert.EqualValues(db.t, 2, *got.Revision)
	assert.Equal(db.t, token.Generation, db.row("r").Accepted)
	assert.Equal(db.t, "b's", db.published("r")[0].Payload)
}

func publishInTime(db *Database) {
	a := db.session()
	token := a.takes("r")
	assert.Nil(db.t, a.gets("accepted", publish(token, "{}")).LateMS)
	assert.Nil(db.t, a.gets("ok", check(token)).LateMS)
	assert.Zero(db.t, db.count("late_publications"))
}

func publishLate(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.age("r", time.Duration(minute)*time.Millisecond+time.Hour)
	got := a.gets("accepted", publish(token, "{}", keyed("k")))
	require.NotNil(db.t, got.LateMS)
	assert.GreaterOrEqual(db.t, *got.LateMS, time.Hour.Milliseconds()-minute)
	late := got.PublishedAt.Sub(db.row("r").LeaseUntil)
	assert.InDelta(db.t, late.Milliseconds(), *got.LateMS, 1)
	assert.Equal(db.t, got.LateMS, db.published("r")[0].LateMS)
	assert.EqualValues(db.t, 1, db.count("late_publications"))
	assert.Equal(db.t, got.LateMS, a.gets("replayed", publish(token, "{}", keyed("k"))).LateMS)
	assert.GreaterOrEqual(db.t, *a.gets("ok", check(token)).LateMS, *got.LateMS)
	assert.GreaterOrEqual(db.t, *a.gets("ok", requires(token)).LateMS, *got.LateMS)

	a.gets("renewed", renew(token))
	assert.Nil(db.t, a.gets("accepted", publish(token, "{}")).LateMS)
	assert.EqualValues(db.t, 1, db.count("late_publications"))
}

func publishExpired(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	db.sawTheRow(a.gets("rejected: expired", publish(token, "{}", whileUnexpired)))
	assert.Empty(db.t, db.published("r"))
	a.gets("renewed", renew(token))
	a.gets("accepted", publish(token, "{}", whileUnexpired))
}

func freshness(db *Database) {
	a := db.session()
	token := a.takes("r")
	asOf := func(ago time.Duration) time.Time { return db.now().Add(-ago) }
	a.gets("rejected: stale_source", publish(token, "{}", fromSource(asOf(61*time.Second), minute)))
	got := a.gets("accepted", publish(token, "{}", fromSource(asOf(59*time.Second), minute)))
	assert.EqualValues(db.t, 1, *got.Revision)
	a.gets("accepted", publish(token, "{}", fromSource(asOf(-time.Hour), 1)))
	a.gets("accepted", publish(token, "{}", fromSource(asOf(9*365*24*time.Hour), tenYears)))

	// Without a limit, any age is kept and none is refused.
	old := asOf(30 * 365 * 24 * time.Hour).Truncate(time.Microsecond)
	a.gets("accepted", publish(token, "{}", func(p *procedures.PublishParams) { p.SourceAsOf = &old }))
	assert.WithinDuration(db.t, old, *db.published("r")[0].SourceAsOf, 0)
	a.gets("accepted", publish(token, "{}"))
	assert.Nil(db.t, db.published("r")[0].SourceAsOf)
}

func freshnessAfterTheWait(db *Database) {
	a, blocker := db.session(), db.session().begins()
	token := a.takes("r")
	blocker.locks("r", lease)
	asOf := db.now().Add(300 * time.Millisecond)
	waiting := a.waitsOn(publish(token, "{}", fromSource(asOf, 1)))
	db.waitUntil(asOf.Add(time.Millisecond))
	blocker.commits()
	waiting.gets("rejected: stale_source")
	assert.Empty(db.t, db.published("r"))
}

func orderOfReasons(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	a.gets("accepted", publish(token, "{}", keyed("k")))
	stale := fromSource(db.now().Add(-time.Hour), 1)

	a.gets("rejected: key_conflict", publish(token, "another", keyed("k"), whileUnexpired))
	a.gets("rejected: stale_source", publish(token, "another", keyed("k"), whileUnexpired, stale))
	db.expire("r")
	a.gets("rejected: expired", publish(token, "another", keyed("k"), whileUnexpired, stale))
	a.gets("rejected: stale_source", publish(token, "another", keyed("k"), stale))
	wrong := token
	wrong.Owner = "somebody else"
	a.gets("released", release(token))
	a.gets("rejected: released", publish(token, "another", keyed("k"), whileUnexpired, stale))
	a.gets("rejected: wrong_owner", publish(wrong, "another", keyed("k"), whileUnexpired, stale))
	b.takes("r")
	a.gets("rejected: superseded", publish(wrong, "another", keyed("k"), whileUnexpired, stale))
}

func publishThenRelease(db *Database) {
	a, b := db.session(), db.session()
	token := a.takes("r")
	got := a.gets("accepted", publish(token, "the last", thenRelease))
	row := db.row("r")
	require.NotNil(db.t, row.ReleasedAt)
	assert.WithinDuration(db.t, *got.PublishedAt, *row.ReleasedAt, 0)
	require.NotNil(db.t, row.TermReleasedAt)
	assert.WithinDuration(db.t, *got.PublishedAt, *row.TermReleasedAt, 0)
	a.gets("replayed", release(token))
	a.gets("rejected: released", publish(token, "one more"))
	a.gets("refused: released", renew(token))
	b.takes("r")
	assert.Equal(db.t, "the last", db.published("r")[0].Payload)
}

func refusedPublishReleasesNothing(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("rejected: stale_source", publish(token, "{}", thenRelease, fromSource(db.now().Add(-time.Hour), 1)))
	a.gets("ok", check(token, procedures.Unexpired))
	db.session().gets("held", acquire("r", "b"))
}

func keepsPayloads(db *Database) {
	a := db.session()
	token := a.takes("r")
	for _, payload := range []string{
		"", " ", "null", `{"a": 1,  "a": 2}`, "line\r\nline\ttab", "'; DROP TABLE x; --", "\u0001\u007f", "é日😀\u0301",
		strings.Repeat("x", 1<<20), strings.Repeat("😀", 1<<18),
	} {
		a.gets("accepted", publish(token, payload))
		got := db.published("r")[0].Payload
		require.Equal(db.t, len(payload), len(got))
		require.True(db.t, payload == got, "%.40q", payload)
	}
}

func keepsContentType(db *Database) {
	a := db.session()
	token := a.takes("r")
	for _, contentType := range []string{"text/plain", "text/html; charset=utf-8", strings.Repeat("x", 255)} {
		a.gets("accepted", publish(token, "x", ofType(contentType)))
		assert.Equal(db.t, contentType, db.published("r")[0].ContentType)
	}
}

func rolledBackPublishLeavesNothing(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	before := db.row("r")
	a.begins().gets("accepted", publish(token, "never", keyed("k"), thenRelease))
	a.rollsBack()
	assert.Equal(db.t, before, db.row("r"))
	for _, table := range []string{"publication", "publication_key", "late_publication", "rejection"} {
		assert.Zero(db.t, db.count(table), table)
	}
}

func publishKeepsLease(db *Database) {
	a := db.session()
	token := a.takes("r")
	before := db.row("r")
	a.gets("accepted", publish(token, "{}"))
	after := db.row("r")
	assert.Nil(db.t, after.ReleasedAt)
	assert.Equal(db.t, before.LeaseUntil, after.LeaseUntil)
	assert.Equal(db.t, before.AcquiredAt, after.AcquiredAt)
	db.session().gets("held", acquire("r", "b"))
}

func writesBeforeTakeOver(db *Database) {
	a, b := db.session(), db.session()
	a.does("CREATE SCHEMA app")
	a.does("CREATE TABLE app.report (id integer PRIMARY KEY, content text)")
	a.does("INSERT INTO app.report VALUES (42, 'old')")
	token := a.takes("r")

	a.begins().gets("ok", check(token))
	a.does("UPDATE app.report SET content = 'a''s'")
	db.endLease("r")
	waiting := b.waitsOn(acquire("r", b.name))
	a.commits()

	got := waiting.gets("acquired")
	var content string
	db.reads(func(scan func(...any) error) error { return scan(&content) }, "SELECT content FROM app.report")
	assert.Equal(db.t, "a's", content, "the new holder starts from what the old one committed")
	b.gets("ok", check(procedures.Token{Resource: "r", Owner: b.name, Generation: *got.Generation}))
	a.begins().gets("rejected: superseded", check(token))
	a.commits()
}

func requireUndoes(db *Database) {
	a := db.session()
	a.does("CREATE SCHEMA app")
	a.does("CREATE TABLE app.report (id integer PRIMARY KEY, content text)")
	token := a.takes("r")
	db.expire("r")
	db.session().takes("r")

	a.begins()
	a.does("INSERT INTO app.report VALUES (42, 'too late')")
	a.gets("refused: superseded", requires(token))
	a.rollsBack()
	var rows int
	db.reads(func(scan func(...any) error) error { return scan(&rows) }, "SELECT count(*) FROM app.report")
	assert.Zero(db.t, rows)
}

func requireSaysWhy(db *Database) {
	a := db.session()
	token := a.takes("r")
	db.expire("r")
	b := db.session().takes("r")
	_, err := requires(token).make(db.ctx, a.connection)
	require.Error(db.t, err)
	assert.Equal(db.t, procedures.KindRefused, procedures.Classify(err).Kind)
	assert.Contains(db.t, err.Error(), "superseded")
	detail := detailOf(err)
	assert.Equal(db.t, procedures.Superseded, detail.Reason)
	assert.Equal(db.t, b.Generation, *detail.ObservedGeneration)
	assert.Equal(db.t, b.Owner, *detail.ObservedOwner)
	assert.Empty(db.t, db.rejections("r"))
}

func savepointGivesLockBack(db *Database) {
	a, b := db.session(), db.session().impatient()
	token := a.takes("r")
	a.begins().saves("before")
	a.gets("ok", check(token))
	db.endLease("r")
	b.gets("busy", acquire("r", "b"))
	a.rollsBackTo("before")
	b.gets("acquired", acquire("r", "b"))
	a.gets("rejected: superseded", check(token))
}

func savepointKeepsLock(db *Database) {
	a, b := db.session(), db.session().impatient()
	token := a.takes("r")
	a.begins().gets("ok", check(token))
	a.saves("after")
	a.rollsBackTo("after")
	db.endLease("r")
	b.gets("busy", acquire("r", "b"))
	a.commits()
	b.gets("acquired", acquire("r", "b"))
}

func checkInAutocommit(db *Database) {
	a := db.session()
	token := a.takes("r")
	a.gets("ok", check(token))
	db.session().impatient().begins().locks("r", lease, leaseTerm)
}

func checkChangesNothing(db *Database) {
	a := db.session()
	token := a.takes("r")
	before := db.row("r")
	a.gets("ok", check(token, procedures.Unexpired))
	a.gets("ok", requires(token, procedures.Unexpired))
	assert.Equal(db.t, before, db.row("r"))
}
