package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/internal/devdb"
)

// babelfish is the T-SQL server of this test run, started when the first test asks for it.
var babelfish struct {
	once   sync.Once
	server *devdb.Babelfish
	err    error

	creating sync.Mutex // it fails at two databases that are created at once
}

// emptySQLServer returns the DSN of an empty database in T-SQL; the test is skipped where there is no server.
func emptySQLServer(t *testing.T) string {
	t.Helper()
	babelfish.once.Do(func() {
		settings := devdb.TestSettings()
		settings["statement_timeout"] = "60s" // the driver's cancelling is ignored here
		babelfish.server, babelfish.err = devdb.StartBabelfish(context.Background(), devdb.Options{Settings: settings})
	})
	if errors.Is(babelfish.err, devdb.ErrNoBabelfish) {
		t.Skip("SQL Server: not run: there is no Babelfish on this machine")
	}
	require.NoError(t, babelfish.err)
	babelfish.creating.Lock()
	defer babelfish.creating.Unlock()
	name := "cli_" + strings.ToLower(rand.Text()[:12])
	require.NoError(t, babelfish.server.CreateDatabase(t.Context(), name))
	return babelfish.server.DSN(name)
}

// newSQLServer returns the DSN of a database in T-SQL with a fence, which the command line installed.
func newSQLServer(t *testing.T) string {
	t.Helper()
	dsn := emptySQLServer(t)
	migrated := on(dsn).run(t, "migrate", "-o", "json")
	require.Equal(t, 0, migrated.code, migrated.stdout+migrated.stderr)
	return dsn
}

// onBothEngines runs a test on each engine, with a way to change rows.
func onBothEngines(t *testing.T, test func(t *testing.T, dsn string, change func(sql string))) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := newDatabase(t)
		test(t, dsn, func(text string) { execute(t, connect(t, dsn), text) })
	})
	t.Run("mssql", func(t *testing.T) {
		t.Parallel()
		dsn := newSQLServer(t)
		test(t, dsn, func(text string) { executeSQLServer(t, dsn, text) })
	})
}

func executeSQLServer(t *testing.T, dsn, text string) {
	t.Helper()
	db, err := sql.Open("sqlserver", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), text)
	require.NoError(t, err)
}

// longAgo is a statement that lets every lease be over, on both engines.
const longAgo = "UPDATE fence.lease_term SET lease_until = '2020-01-01'"

func TestBothEnginesGiveTheSameAnswers(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, dsn string, change func(string)) {
		sh := on(dsn)
		object := func(code int, args ...string) map[string]any {
			t.Helper()
			got := sh.run(t, append(args, "-o", "json")...)
			require.Equal(t, code, got.code, "%v: %s%s", args, got.stdout, got.stderr)
			return got.object(t)
		}
		id := uuid.NewString()
		taken := object(0, "acquire", "report:42", "--owner", "w1", "--ttl", "1h", "--request-id", id, "--attributes", `{"job": 17}`)
		assert.Equal(t, "acquired", taken["outcome"])
		assert.Equal(t, 3_600_000.0, taken["remaining_ms"])
		assert.Equal(t, map[string]any{"job": 17.0}, taken["holder_attributes"])
		until, err := time.Parse(timeLayout, taken["lease_until"].(string))
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now().Add(time.Hour), until, 10*time.Second, "UTC, whatever the time zone of the machine")
		assert.Equal(t, "replayed", object(0, "acquire", "report:42", "--owner", "w1", "--ttl", "1h", "--request-id", id)["outcome"])

		held := object(10, "acquire", "report:42", "--owner", "w2", "--ttl", "1h")
		assert.Equal(t, []any{"held", nil, "w1", false}, []any{held["outcome"], held["generation"], held["holder"], held["busy"]})

		token := []string{"report:42", "--owner", "w1", "--generation", "1"}
		assert.Equal(t, 7_200_000.0, object(0, append([]string{"renew", "--ttl", "2h"}, token...)...)["remaining_ms"])
		sh.stdin = strings.NewReader(`{"total": 3}`)
		published := object(0, append([]string{"publish", "--operation-key", "k1"}, token...)...)
		assert.Equal(t, []any{"accepted", 1.0, nil}, []any{published["outcome"], published["revision"], published["late_ms"]})
		sh.stdin = strings.NewReader(`{"total": 4}`)
		assert.Equal(t, "key_conflict", object(10, append([]string{"publish", "--operation-key", "k1"}, token...)...)["reason"])
		assert.Equal(t, "ok", object(0, append([]string{"check"}, token...)...)["outcome"])

		change(longAgo)
		sh.stdin = strings.NewReader(`{"total": 5}`)
		assert.Equal(t, "expired", object(10, append([]string{"publish", "--policy", "unexpired"}, token...)...)["reason"])
		sh.stdin = strings.NewReader(`{"total": 5}`)
		assert.Positive(t, object(0, append([]string{"publish"}, token...)...)["late_ms"])
		assert.Equal(t, 2.0, object(0, "acquire", "report:42", "--owner", "w2", "--ttl", "1h")["generation"])
		sh.stdin = strings.NewReader(`{"total": 6}`)
		refused := object(10, append([]string{"publish"}, token...)...)
		assert.Equal(t, []any{"rejected", "superseded", 2.0, "w2"},
			[]any{refused["outcome"], refused["reason"], refused["observed_generation"], refused["observed_owner"]})
		assert.Equal(t, "unknown", object(0, append([]string{"diagnose"}, token...)...)["reason"])
		assert.Equal(t, "superseded", object(10, append([]string{"release"}, token...)...)["reason"])

		seized := object(0, "seize", "report:42", "--generation", "2", "--by", "anna", "--note", "host lost")
		assert.Equal(t, []any{"seized", 3.0, "w2"}, []any{seized["outcome"], seized["generation"], seized["previous_owner"]})
		assert.Equal(t, 100.0, object(0, "raise-floor", "report:42", "--at-least", "100")["floor_after"])
		assert.Equal(t, 500.0, object(0, "raise-floor", "--all", "--at-least", "500")["floor_after"])
		assert.Equal(t, "removed", object(0, "remove", "report:42", "--generation", "3", "--by", "anna")["outcome"])
		assert.Equal(t, "not_found", object(10, "remove", "report:42", "--generation", "3", "--by", "bert")["outcome"])
		assert.Equal(t, 501.0, object(0, "acquire", "report:42", "--owner", "w3", "--ttl", "1h")["generation"])
	})
}

func TestBothEnginesListTheSame(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, dsn string, change func(string)) {
		sh := on(dsn)
		list := func(args ...string) []map[string]any {
			t.Helper()
			got := sh.run(t, append(args, "-o", "json")...)
			require.Equal(t, 0, got.code, "%v: %s%s", args, got.stdout, got.stderr)
			return got.array(t)
		}
		for _, name := range []string{"a_1", "a[1]", "a%1", "ab1", "ä1"} {
			require.Equal(t, 0, sh.run(t, "acquire", name, "--owner", "w1", "--ttl", "1h").code)
			require.Equal(t, 10, sh.run(t, "publish", name, "--owner", "w2", "--generation", "1").code)
		}
		for glob, names := range map[string][]string{
			"*": {"a%1", "a[1]", "a_1", "ab1", "ä1"}, "a_1": {"a_1"}, "a?1": {"a%1", "a_1", "ab1"}, "a[1]": {"a[1]"}, "?1": {"ä1"}, "A*": {},
		} {
			found := []string{}
			for _, row := range list("leases", "--resource", glob) {
				found = append(found, row["resource"].(string))
			}
			assert.ElementsMatch(t, names, found, glob)
		}
		change("UPDATE fence.lease_term SET lease_until = '2020-01-01' WHERE resource = 'ab1'")
		expired := list("leases", "--state", "expired")
		require.Len(t, expired, 1)
		assert.Equal(t, "ab1", expired[0]["resource"])
		assert.Len(t, list("leases", "--limit", "2"), 2)

		change("UPDATE fence.rejection SET last_at = '2020-01-01', first_at = '2020-01-01' WHERE resource = 'ab1'")
		assert.Len(t, list("rejections"), 5)
		assert.Len(t, list("rejections", "--since", "30d"), 4, "more milliseconds than an int holds")
		by := list("rejections", "--by", "reason")
		require.Len(t, by, 1)
		assert.Equal(t, []any{"publish", "wrong_owner", 5.0, 5.0}, []any{by[0]["operation"], by[0]["reason"], by[0]["occurrences"], by[0]["resources"]})

		sh.stdin = strings.NewReader("abc")
		require.Equal(t, 0, sh.run(t, "publish", "a_1", "--owner", "w1", "--generation", "1").code)
		published := list("publications", "--payload")
		require.Len(t, published, 1)
		assert.Equal(t, "abc", published[0]["payload"])
		assert.Positive(t, published[0]["payload_bytes"])
		assert.Empty(t, list("publications", "--late"))

		pruned := list("prune", "--older-than", "1d")
		var removed float64
		for _, row := range pruned {
			removed += row["removed"].(float64)
		}
		assert.Equal(t, 1.0, removed)
	})
}

func TestBothEnginesExplainTheirErrors(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, dsn string, _ func(string)) {
		sh := on(dsn)
		bad := sh.run(t, "acquire", "r ", "--owner", "w1", "--ttl", "1h", "-o", "json")
		assert.Equal(t, 2, bad.code)
		assert.Equal(t, "invalid_argument", bad.failure(t)["kind"])
		assert.Equal(t, "mend RESOURCE", strings.Split(bad.failure(t)["hint"].(string), ";")[0])

		verified := sh.run(t, "verify", "-o", "json")
		assert.Equal(t, 0, verified.code, verified.stdout)
		assert.Equal(t, 0, sh.run(t, "migrate", "status").code)
		about := sh.run(t, "about", "-o", "json").object(t)
		assert.Equal(t, 1.0, about["contract_version"])
		assert.Equal(t, 2, sh.run(t, "uninstall").code)
		assert.Equal(t, 0, sh.run(t, "uninstall", "--allow-destructive").code)
		gone := sh.run(t, "acquire", "r", "--owner", "w1", "--ttl", "1h", "-o", "json")
		assert.NotEqual(t, 0, gone.code)
		gone.failure(t)
	})
}

func TestDoctorOnSQLServerSaysWhatItCannotSee(t *testing.T) {
	t.Parallel()
	got := on(newSQLServer(t)).run(t, "doctor", "-o", "json")
	require.Equal(t, 0, got.code, got.stdout+got.stderr)
	findings := map[string]any{}
	for _, f := range got.object(t)["findings"].([]any) {
		f := f.(map[string]any)
		findings[f["check"].(string)] = f["status"]
	}
	for _, check := range []string{"version", "delayed_durability", "collation", "clock", "compatibility_level", "snapshot", "optimized_locking"} {
		assert.Contains(t, findings, check)
	}
	assert.Equal(t, "ok", findings["clock"])
	for _, check := range []string{"availability_group", "history", "oldest_transaction"} {
		assert.NotEqual(t, "warning", findings[check], check)
		assert.NotEqual(t, "unfit", findings[check], check)
	}
	assert.Equal(t, "unknown", findings["history"], "no fork is recorded, and Babelfish has none")
}

func TestAWrongPasswordOfSQLServerIsNotShown(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(emptySQLServer(t))
	require.NoError(t, err)
	dsn.User = url.UserPassword("fencectl", "geheim")
	for _, args := range [][]string{{"about"}, {"migrate"}, {"demo", "--dsn", dsn.String()}} {
		got := on(dsn.String()).run(t, append(args, "-v")...)
		assert.Equal(t, 5, got.code, "%v: %s", args, got.stderr)
		assert.NotContains(t, got.stdout+got.stderr, "geheim", fmt.Sprint(args))
	}
}
