package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowhere is a database that refuses connections.
const nowhere = "host=127.0.0.1 port=1 user=u dbname=d sslmode=disable connect_timeout=5"

// callOfEach has a correct call of every command that needs a database.
func callOfEach() map[string]string {
	return map[string]string{
		"acquire":        "r --owner w --ttl 1s",
		"renew":          "r --owner w --generation 1 --ttl 1s",
		"release":        "r --owner w --generation 1",
		"publish":        "r --owner w --generation 1",
		"check":          "r --owner w --generation 1",
		"diagnose":       "r --owner w --generation 1",
		"seize":          "r --generation 1 --by anna",
		"raise-floor":    "--all --at-least 1",
		"remove":         "r --generation 1 --by anna",
		"prune":          "--older-than 30d",
		"about":          "",
		"leases":         "",
		"rejections":     "",
		"publications":   "",
		"migrate":        "",
		"migrate up":     "",
		"migrate status": "",
		"migrate down":   "--to 0 --allow-destructive",
		"uninstall":      "--allow-destructive",
		"verify":         "",
		"doctor":         "",
	}
}

// words splits a call of callOfEach.
func words(path, flags string) []string {
	return append(strings.Fields(path), strings.Fields(flags)...)
}

func everyCommand(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	found := map[string]*cobra.Command{}
	var walk func(path string, commands []*cobra.Command)
	walk = func(path string, commands []*cobra.Command) {
		for _, cmd := range commands {
			name := strings.TrimSpace(path + " " + cmd.Name())
			if cmd.Runnable() {
				found[name] = cmd
			}
			walk(name, cmd.Commands())
		}
	}
	walk("", newRoot(&app{}).Commands())
	return found
}

func TestEveryCommandOfADatabaseIsTried(t *testing.T) {
	t.Parallel()
	calls := callOfEach()
	for name, cmd := range everyCommand(t) {
		switch name {
		case "version", "demo", "dev", "completion", "help":
			continue // they need no database of the user's
		}
		if !cmd.Hidden && !strings.HasPrefix(name, "completion ") {
			assert.Contains(t, calls, name)
		}
	}
}

func TestEveryCommandFailsAsJSONToo(t *testing.T) {
	t.Parallel()
	for name, flags := range callOfEach() {
		for _, format := range []string{"json", "jsonl"} {
			t.Run(name+" "+format, func(t *testing.T) {
				t.Parallel()
				got := on(nowhere).run(t, append(words(name, flags), "-o", format)...)
				assert.Equal(t, 5, got.code, got.stdout)
				failure := got.failure(t)
				assert.Equal(t, "cannot_connect", failure["kind"])
				assert.Equal(t, true, failure["retryable"])
				assert.Equal(t, false, failure["outcome_unknown"])
				assert.Empty(t, got.stderr, "a program reads standard output")
			})
		}
	}
}

func TestAFailedCallTellsTheIDToRepeatItWith(t *testing.T) {
	t.Parallel()
	acquire := on(nowhere).run(t, "acquire", "r", "--owner", "w", "--ttl", "1s", "-o", "json").failure(t)
	assert.NotEmpty(t, acquire["request_id"])
	assert.Contains(t, acquire["hint"], fmt.Sprintf("--request-id %s", acquire["request_id"]))
	publish := on(nowhere).run(t, "publish", "r", "--owner", "w", "--generation", "1")
	assert.Equal(t, 5, publish.code)
	assert.Empty(t, publish.stdout, "standard output is for data")
	assert.Regexp(t, `--operation-key [0-9a-f-]{36}`, publish.stderr)
}

func TestUsageErrorsExitWith2AndAShortMessage(t *testing.T) {
	t.Parallel()
	cases := []struct{ args, message, hint string }{
		{"nope", `unknown command "nope"`, `see "fencectl --help"`},
		{"acqire r", `unknown command "acqire"`, `did you mean "fencectl acquire"?`},
		{"renew --bogus", "unknown flag: --bogus", `see "fencectl renew --help"`},
		{"leases --limit", "flag needs an argument", `see "fencectl leases --help"`},
		{"leases extra", `unexpected argument "extra"`, ""},
		{"leases --limit -1", "--limit must not be negative", ""},
		{"leases --state dead", "allowed are live, expired, released, seized, unused", ""},
		{"leases -o xml", "allowed are table, json, jsonl", ""},
		{"acquire", "missing RESOURCE", `see "fencectl acquire --help"`},
		{"acquire r --ttl 1s", "missing --owner", ""},
		{"acquire r --owner w", "missing --ttl", ""},
		{"acquire r --owner w --ttl 30", "it needs a unit", ""},
		{"acquire r --owner w --ttl 0", "it must be at least 1ms", ""},
		{"acquire r --owner w --ttl=-1s", "it must not be negative", ""},
		{"acquire r --owner w --ttl 87661h", "it must be at most 10 years", ""},
		{"acquire r --owner w --ttl 1500us", "it must be whole milliseconds", ""},
		{"acquire r --owner w --ttl 1s --wait 1m --timeout 10s", "--wait 1m0s does not fit into --timeout 10s", ""},
		{"acquire r --owner w --ttl 1s --request-id 7", "not a UUID", ""},
		{"acquire r --owner w --ttl 1s --attributes {", "not JSON", ""},
		{"acquire r --owner w\x00 --ttl 1s", "not valid UTF-8 text", ""},
		{"renew r --owner w --ttl 1s", "missing --generation", ""},
		{"renew r --owner w --generation x --ttl 1s", `invalid argument "x" for "--generation"`, ""},
		{"publish r --owner w --generation 1 --file /does/not/exist", "read --file", ""},
		{"publish r --owner w --generation 1 --policy maybe", "allowed are until_superseded, unexpired", ""},
		{"publish r --owner w --generation 1 --max-source-age 1s", "needs --source-as-of", ""},
		{"publish r --owner w --generation 1 --source-as-of yesterday", "RFC 3339", ""},
		{"publish r --owner w --generation 1 --dsn-file -", "cannot both read standard input", ""},
		{"diagnose r --owner w --generation 1 --attempted-at now", "RFC 3339", ""},
		{"seize r --generation 1", `"by" not set`, ""},
		{"seize --generation 1 --by anna", "missing RESOURCE", ""},
		{"remove r --by anna", `"generation" not set`, ""},
		{"raise-floor r", `"at-least" not set`, ""},
		{"raise-floor --at-least 1", "missing RESOURCE", ""},
		{"raise-floor r --all --at-least 1", "not both", ""},
		{"prune", "missing --older-than", ""},
		{"rejections --by owner", "allowed are reason", ""},
		{"publications --late --payload", "late payload", ""},
		{"migrate --roles some", "allowed are create, existing", ""},
		{"migrate down", `"to" not set`, ""},
		{"about --timeout soon", "it is not a duration", ""},
	}
	for _, c := range cases {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			got := on(nowhere).run(t, strings.Split(c.args, " ")...)
			assert.Equal(t, 2, got.code, got.stderr)
			assert.Empty(t, got.stdout)
			assert.Contains(t, got.stderr, c.message)
			assert.Contains(t, got.stderr, c.hint)
			assert.LessOrEqual(t, strings.Count(got.stderr, "\n"), 2, "not the whole help text")
			if !strings.Contains(c.args, "xml") {
				for _, format := range []string{"-o json", "-ojson", "--output=json", "--output jsonl"} {
					again := on(nowhere).run(t, append(strings.Fields(format), strings.Split(c.args, " ")...)...)
					assert.Equal(t, 2, again.code)
					assert.Equal(t, "usage", again.failure(t)["kind"])
				}
			}
		})
	}
}

func TestTheDatabaseValidatesToo(t *testing.T) {
	t.Parallel()
	sh := on(newDatabase(t))
	cases := map[string]string{
		"acquire r --owner w --ttl 1s --attributes []":           "--attributes",
		"acquire  --owner w --ttl 1s":                            "RESOURCE",
		"renew r --owner w --generation 0 --ttl 1s":              "--generation",
		"publish r --owner w --generation 1 --operation-key k\t": "--operation-key",
		"raise-floor r --at-least -1":                            "--at-least",
		"prune --older-than 1h --batch 0":                        "--batch",
	}
	for args, flag := range cases {
		got := sh.run(t, append(strings.Split(args, " "), "-o", "json")...)
		assert.Equal(t, 2, got.code, args)
		failure := got.failure(t)
		assert.Equal(t, "invalid_argument", failure["kind"], args)
		assert.Equal(t, "FN001", failure["sqlstate"])
		assert.Contains(t, failure["hint"], flag, args)
	}
}

func TestExitCodesOfADatabaseThatCannotServe(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	conn := connect(t, dsn)
	role := "stranger_" + strings.ToLower(fmt.Sprint(conn.PgConn().PID()))
	execute(t, conn, "CREATE ROLE "+role+" LOGIN PASSWORD 'right'")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), server.DSN("postgres"))
		if err == nil {
			_, _ = conn.Exec(context.Background(), "DROP ROLE "+role)
			_ = conn.Close(context.Background())
		}
	})
	as := func(user, password string) string {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		u.User = url.UserPassword(user, password)
		return u.String()
	}
	cases := []struct {
		name, dsn      string
		code           int
		kind, sqlstate any
		hint           string
	}{
		{"not installed", server.DSN("postgres"), 3, "not_installed", "3F000", "fencectl migrate"},
		{"no right", as(role, "right"), 5, "not_permitted", "42501", "grant"},
		{"wrong password", as(role, "wrong"), 5, "not_permitted", "28P01", "password"},
		{"no such database", server.DSN("nothing"), 5, "cannot_connect", "3D000", "address"},
		{"read-only", dsn + "&default_transaction_read_only=on", 5, "read_only", "25006", "primary"},
		{"nobody listens", nowhere, 5, "cannot_connect", nil, "address"},
	}
	for _, c := range cases {
		got := on(c.dsn).run(t, "acquire", "r", "--owner", "w", "--ttl", "1s", "-o", "json")
		assert.Equal(t, c.code, got.code, c.name)
		failure := got.failure(t)
		assert.Equal(t, c.kind, failure["kind"], c.name)
		assert.Equal(t, c.sqlstate, failure["sqlstate"], c.name)
		assert.Contains(t, failure["hint"], c.hint, c.name)
		assert.NotContains(t, got.stdout, "wrong\"")
	}
}

func TestARowThatSomebodyHoldsIsALockTimeout(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	for i, args := range []string{
		"publish r0 --owner w1 --generation 1", "renew r1 --owner w1 --generation 1 --ttl 1s", "release r2 --owner w1 --generation 1",
		"check r3 --owner w1 --generation 1", "seize r4 --generation 1 --by anna", "raise-floor r5 --at-least 7",
	} {
		resource := fmt.Sprintf("r%d", i)
		lease(t, dsn, resource, "w1")
		holdRow(t, dsn, resource)
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := on(dsn).run(t, append(strings.Fields(args), "-o", "json", "--timeout", "3s")...)
			assert.Equal(t, 4, got.code)
			failure := got.failure(t)
			assert.Equal(t, "busy", failure["kind"])
			assert.Equal(t, "55P03", failure["sqlstate"])
			assert.Equal(t, true, failure["retryable"])
			assert.Equal(t, false, failure["outcome_unknown"])
			assert.Contains(t, failure["hint"], "fencectl leases")
		})
	}
}

func TestACallThatTheTimeoutCancelledWaitedForARow(t *testing.T) {
	t.Parallel()
	cancelled := &pgconn.PgError{Code: "57014", Message: "canceling statement due to user request"}
	explained := func(err error) failure {
		return explain(&ended{error: err, cause: timeoutError{3 * time.Second}})
	}
	call := explained(&callError{err: cancelled})
	assert.Equal(t, ExitLockTimeout, call.exit)
	assert.Equal(t, "no answer within 3s; the call was cancelled and changed nothing", call.Message)
	assert.True(t, call.Retryable)
	assert.Equal(t, ExitError, explained(&callError{err: cancelled, reading: true}).exit)
	assert.Equal(t, ExitError, explained(&partly{error: &callError{err: cancelled}}).exit, "prune has much to do")
	lost := explained(&callError{err: io.ErrUnexpectedEOF})
	assert.Equal(t, ExitOutcomeUnknown, lost.exit)
	assert.Contains(t, lost.Message, "may have taken effect")
}

func TestAQueueForARowEndsInALockTimeoutForAll(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	holdRow(t, dsn, "r")
	var waiters []<-chan result
	for range 3 {
		waiters = append(waiters, on(dsn).start(t, "publish", "r", "--owner", "w1", "--generation", "1", "--timeout", "2s", "-o", "json"))
	}
	for _, waiter := range waiters {
		got := <-waiter
		assert.Equal(t, 4, got.code, got.stdout)
		assert.Equal(t, false, got.failure(t)["outcome_unknown"])
		assert.Contains(t, got.failure(t)["hint"], "fencectl leases")
	}
}

func TestTimeoutBoundsTheCommandAndSaysThatNothingChanged(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	conn := connect(t, dsn)
	execute(t, conn, "BEGIN")
	execute(t, conn, "LOCK TABLE fence.lease IN ACCESS EXCLUSIVE MODE")
	begun := time.Now()
	got := on(dsn).run(t, "leases", "--timeout", "300ms", "-o", "json")
	assert.Equal(t, 1, got.code)
	failure := got.failure(t)
	assert.Equal(t, "timeout", failure["kind"])
	assert.Contains(t, failure["message"], "300ms")
	assert.Contains(t, failure["hint"], "--timeout")
	assert.Less(t, time.Since(begun), 2*time.Second)
}

func TestAWriteThatFailsIsNotDone(t *testing.T) {
	t.Parallel()
	a := &app{stdout: brokenPipe{}, stderr: &strings.Builder{}}
	a.output.value = formatJSON
	err := a.answer(struct{}{}, "acquired", nil, "acquired")
	require.Error(t, err)
	assert.Equal(t, ExitError, a.report(err), "the caller never saw the generation")
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("no space left") }
