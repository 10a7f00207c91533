package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestADatabaseIsMigratedVerifiedTakenDownAndUninstalled(t *testing.T) {
	t.Parallel()
	dsn := emptyDatabase(t)
	sh := on(dsn)

	pending := sh.run(t, "migrate", "status", "-o", "json")
	assert.Equal(t, 3, pending.code)
	assert.Equal(t, false, pending.object(t)["installed"])
	assert.Equal(t, 3, sh.run(t, "verify").code)

	first := sh.run(t, "migrate", "-o", "json")
	require.Equal(t, 0, first.code, first.stdout)
	assert.Equal(t, true, first.object(t)["changed"])
	assert.Contains(t, first.object(t)["routines"], "acquire")
	again := sh.run(t, "migrate", "up", "-o", "json")
	require.Equal(t, 0, again.code, again.stdout)
	assert.Equal(t, false, again.object(t)["changed"])

	for _, args := range []string{"migrate status", "verify"} {
		for _, format := range []string{"table", "json", "jsonl"} {
			got := sh.run(t, append(strings.Fields(args), "-o", format)...)
			assert.Equal(t, 0, got.code, args)
			if format != "table" {
				got.object(t)
			}
		}
	}

	token := lease(t, dsn, "r", "w1")
	for _, args := range []string{"migrate down --to 0", "uninstall"} {
		refused := sh.run(t, append(strings.Fields(args), "-o", "json")...)
		assert.Equal(t, 2, refused.code, "not without --allow-destructive")
		assert.Contains(t, refused.failure(t)["hint"], "--allow-destructive")
	}
	down := sh.run(t, "migrate", "down", "--to", "0", "--allow-destructive", "-o", "json")
	require.Equal(t, 0, down.code, down.stdout)
	gone := sh.run(t, "uninstall", "--allow-destructive", "-o", "json")
	require.Equal(t, 0, gone.code, gone.stdout)
	assert.Equal(t, float64(token.Generation), gone.object(t)["highest_generation"])

	assert.Equal(t, 0, sh.run(t, "migrate", "--floor", "41", "--roles", "existing").code)
	assert.Equal(t, int64(42), lease(t, dsn, "r", "w1").Generation)
}

func TestADryRunPrintsSQLAndChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := emptyDatabase(t)
	script := on(dsn).run(t, "migrate", "--dry-run")
	require.Equal(t, 0, script.code, script.stderr)
	assert.Contains(t, script.stdout, "CREATE OR REPLACE FUNCTION fence.acquire")
	asJSON := on(dsn).run(t, "migrate", "--dry-run", "-o", "json").object(t)
	assert.Equal(t, script.stdout, asJSON["sql"])
	assert.Equal(t, true, asJSON["dry_run"])

	var installed bool
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "SELECT to_regnamespace('fence') IS NOT NULL").Scan(&installed))
	assert.False(t, installed)
}

func TestDriftIsADifference(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	execute(t, connect(t, dsn), "GRANT SELECT ON fence.lease TO PUBLIC")
	got := on(dsn).run(t, "verify", "-o", "json")
	assert.Equal(t, 3, got.code)
	assert.Equal(t, false, got.object(t)["clean"])
	assert.NotEmpty(t, got.object(t)["differences"])
	assert.Contains(t, on(dsn).run(t, "verify").stdout, "fence.lease")
}

func TestDoctorReportsFindings(t *testing.T) {
	t.Parallel()
	got := on(newDatabase(t)).run(t, "doctor", "-o", "json")
	assert.Equal(t, 3, got.code, "this server runs with fsync off")
	assert.Equal(t, "unfit", got.object(t)["status"])
	statuses := map[any]any{}
	for _, row := range got.object(t)["findings"].([]any) {
		statuses[row.(map[string]any)["check"]] = row.(map[string]any)["status"]
	}
	assert.Equal(t, "unfit", statuses["fsync"])
	assert.Equal(t, "ok", statuses["version"])
	assert.Regexp(t, `(?m)^fsync +unfit`, on(newDatabase(t)).run(t, "doctor").stdout)
}

func TestASecondMigrateWaitsForTheFirstAndNamesIt(t *testing.T) {
	t.Parallel()
	dsn := emptyDatabase(t)
	other := connect(t, dsn+"&application_name=other-deployer")
	var key int64
	script := on(dsn).run(t, "migrate", "--dry-run").stdout
	_, rest, found := strings.Cut(script, "pg_advisory_lock(")
	require.True(t, found)
	number, _, _ := strings.Cut(rest, ")")
	require.NoError(t, other.QueryRow(t.Context(), "SELECT $1::text::bigint FROM pg_advisory_lock($1::text::bigint)", number).Scan(&key))

	got := on(dsn).run(t, "migrate", "--lock-timeout", "200ms", "-o", "json")
	assert.Equal(t, 4, got.code, got.stdout)
	assert.Equal(t, "lock_timeout", got.failure(t)["kind"])
	assert.Equal(t, true, got.failure(t)["retryable"])
	assert.Contains(t, got.failure(t)["message"], "other-deployer")

	timed := on(dsn).run(t, "migrate", "--timeout", "300ms", "-o", "json")
	assert.Equal(t, 1, timed.code, timed.stdout)
	assert.Equal(t, "timeout", timed.failure(t)["kind"])

	ctx, interrupt := context.WithCancel(t.Context())
	waiting := watchFor("other-deployer")
	done := shell{ctx: ctx, env: on(dsn).env, stderr: waiting}.start(t, "migrate", "-o", "json")
	select {
	case <-waiting.seen:
	case <-time.After(20 * time.Second):
		t.Fatal("migrate does not say whom it waits for")
	}
	interrupt()
	interrupted := <-done
	assert.Equal(t, 130, interrupted.code, interrupted.stdout)
	assert.Equal(t, "interrupted", interrupted.failure(t)["kind"])
}
