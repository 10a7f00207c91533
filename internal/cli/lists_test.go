package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func names(rows []map[string]any) []any {
	var found []any
	for _, row := range rows {
		found = append(found, row["resource"])
	}
	return found
}

func TestLeasesAreListedByNameAndState(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	for _, name := range []string{"a:1", "a:10", "b:1", "100%", "100x", `c\d`} {
		lease(t, dsn, name, "w")
	}
	expire(t, dsn, "a:10")

	for glob, want := range map[string][]any{
		"a:*":  {"a:1", "a:10"},
		"?:1":  {"a:1", "b:1"},
		"100%": {"100%"},
		"A:1":  nil,
		`c\\d`: {`c\d`},
		`a:\*`: nil,
	} {
		got := sh.run(t, "leases", "--resource", glob, "-o", "json")
		assert.Equal(t, want, names(got.array(t)), glob)
	}
	assert.Equal(t, []any{"a:10"}, names(sh.run(t, "leases", "--state", "expired", "-o", "json").array(t)))

	lines := sh.run(t, "leases", "-o", "jsonl")
	assert.Equal(t, 6, strings.Count(lines.stdout, "\n"))
	for line := range strings.Lines(lines.stdout) {
		assert.Contains(t, result{stdout: line}.object(t), "lease_until")
	}
	assert.Empty(t, sh.run(t, "leases", "--resource", "nothing", "-o", "jsonl").stdout)
}

func TestALongListIsCutAloud(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	for _, name := range []string{"a", "b", "c"} {
		lease(t, dsn, name, "w")
	}
	cut := sh.run(t, "leases", "--limit", "2", "-o", "json")
	assert.Equal(t, []any{"a", "b"}, names(cut.array(t)))
	assert.Contains(t, cut.stderr, "more than 2")
	for _, limit := range []string{"3", "0"} {
		all := sh.run(t, "leases", "--limit", limit, "-o", "json")
		assert.Len(t, all.array(t), 3)
		assert.Empty(t, all.stderr)
	}
}

func TestLeasesNameWhoBlocksATakeOver(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	lease(t, dsn, "free", "w1")
	conn := connect(t, dsn+"&application_name=nightly-report")
	execute(t, conn, "BEGIN")
	execute(t, conn, "SELECT fence.check('r', 'w1', 1)")

	rows := on(dsn).run(t, "leases", "-o", "json").array(t)
	require.Equal(t, []any{"free", "r"}, names(rows))
	assert.Nil(t, rows[0]["blocked_by_pid"])
	assert.Equal(t, float64(conn.PgConn().PID()), rows[1]["blocked_by_pid"])
	assert.Equal(t, "nightly-report", rows[1]["blocked_by_application"])
	assert.Equal(t, "idle in transaction", rows[1]["blocked_by_state"])
	assert.NotNil(t, rows[1]["blocked_since"])
	assert.Contains(t, on(dsn).run(t, "leases").stdout, "nightly-report")
}

func TestRejectionsAreListedAndCounted(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	insertOldRejections(t, dsn, 2)
	lease(t, dsn, "r", "w1")
	for range 3 {
		sh.run(t, "release", "r", "--owner", "w2", "--generation", "1")
	}
	sh.run(t, "publish", "r", "--owner", "w1", "--generation", "5")

	assert.Len(t, sh.run(t, "rejections", "-o", "json").array(t), 4)
	recent := sh.run(t, "rejections", "--since", "1h", "-o", "json").array(t)
	require.Len(t, recent, 2)
	assert.Equal(t, []any{"publish", "ahead_of_issuer", 1.0}, []any{recent[0]["operation"], recent[0]["reason"], recent[0]["occurrences"]})
	assert.Equal(t, []any{"release", "wrong_owner", 3.0}, []any{recent[1]["operation"], recent[1]["reason"], recent[1]["occurrences"]})

	counted := sh.run(t, "rejections", "--by", "reason", "--since", "1h", "-o", "json").array(t)
	require.Len(t, counted, 2)
	assert.Equal(t, "wrong_owner", counted[0]["reason"], "the most frequent one first")
	assert.Equal(t, 3.0, counted[0]["occurrences"])
	assert.Equal(t, 1.0, counted[0]["resources"])
	assert.Len(t, sh.run(t, "rejections", "--by", "reason", "--resource", "r1", "-o", "json").array(t), 1)
}

func TestPublicationsShowNoPayloadUnlessAsked(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	lease(t, dsn, "r", "w1")
	sh.stdin = strings.NewReader("äöü")
	require.Equal(t, 0, sh.run(t, "publish", "r", "--owner", "w1", "--generation", "1", "--content-type", "text/plain").code)

	listed := sh.run(t, "publications", "-o", "json").array(t)
	require.Len(t, listed, 1)
	assert.NotContains(t, listed[0], "payload")
	assert.Equal(t, 6.0, listed[0]["payload_bytes"])
	assert.NotContains(t, sh.run(t, "publications").stdout, "äöü")
	assert.Contains(t, sh.run(t, "publications", "--payload").stdout, "äöü")
	assert.Equal(t, 2, sh.run(t, "publications", "--payload", "--late").code)
}

func TestWhatStandsInTheDatabaseCannotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	taken := sh.run(t, "acquire", "r", "--owner", "w1", "--ttl", "1h", "--attributes", `{"x": "\u001b[2J\u009b2J\u202e"}`)
	require.Equal(t, 0, taken.code, taken.stderr)
	sh.stdin = strings.NewReader("\x1b]0;title\a\u009b2J\r\nsecond line")
	require.Equal(t, 0, sh.run(t, "publish", "r", "--owner", "w1", "--generation", "1").code)

	for _, args := range []string{"publications --payload", "publications --payload -o json", "acquire r --owner w2 --ttl 1s", "acquire r --owner w2 --ttl 1s -o json"} {
		got := sh.run(t, strings.Fields(args)...)
		assert.NotContains(t, got.stdout+got.stderr, "\x1b", args)
		assert.NotContains(t, got.stdout+got.stderr, "\u009b", args)
		assert.NotContains(t, got.stdout+got.stderr, "\r", args)
	}
	table := sh.run(t, "publications", "--payload").stdout
	assert.Equal(t, 2, strings.Count(table, "\n"), "a line of the payload is no row of the table")
	assert.Contains(t, table, `\x1b]0;title`)
	stored := sh.run(t, "publications", "--payload", "-o", "json").array(t)
	assert.Equal(t, "\x1b]0;title\a\u009b2J\r\nsecond line", stored[0]["payload"], "a program gets it as it is")
}

func TestLeasesShowWhoBlocksOnlyWhereSomebodyDoes(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	assert.NotContains(t, on(dsn).run(t, "leases").stdout, "BLOCKED")
	assert.Contains(t, on(dsn).run(t, "leases", "-o", "json").array(t)[0], "blocked_by_pid")
	holdRow(t, dsn, "r")
	assert.Contains(t, on(dsn).run(t, "leases").stdout, "BLOCKED BY PID")
}

func TestABadNumberIsNamedWithoutTheParsersWords(t *testing.T) {
	t.Parallel()
	bad := shell{}.run(t, "renew", "r", "--owner", "w1", "--generation", "one", "--ttl", "1s")
	assert.Equal(t, 2, bad.code)
	assert.Contains(t, bad.stderr, `"one" for "--generation"`)
	assert.NotContains(t, bad.stderr, "strconv")
}

func TestAnOwnerThatIsHeldUpByItselfIsTold(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	assert.Contains(t, on(dsn).run(t, "acquire", "r", "--owner", "w1", "--ttl", "1s").stderr, "that is you")
	assert.NotContains(t, on(dsn).run(t, "acquire", "r", "--owner", "w2", "--ttl", "1s").stderr, "that is you")
}
