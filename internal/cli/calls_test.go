package cli

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALeaseIsTakenRenewedPublishedUnderAndReleased(t *testing.T) {
	t.Parallel()
	sh := on(newDatabase(t))

	taken := sh.run(t, "acquire", "report:42", "--owner", "w1", "--ttl", "1h", "--attributes", `{"job": 17}`, "-o", "json")
	require.Equal(t, 0, taken.code, taken.stderr)
	row := taken.object(t)
	assert.Equal(t, "acquired", row["outcome"])
	assert.Equal(t, 3_600_000.0, row["remaining_ms"])
	assert.Equal(t, map[string]any{"job": 17.0}, row["holder_attributes"])
	assert.Equal(t, "report:42", row["resource"])
	assert.NoError(t, uuid.Validate(row["request_id"].(string)))
	until, err := time.Parse(timeLayout, row["lease_until"].(string))
	require.NoError(t, err, "RFC 3339 with microseconds in UTC")
	assert.WithinDuration(t, time.Now().Add(time.Hour), until, 5*time.Second)

	token := []string{"report:42", "--owner", "w1", "--generation", fmt.Sprint(row["generation"]), "-o", "json"}
	renewed := sh.run(t, append([]string{"renew", "--ttl", "1m"}, token...)...)
	assert.Equal(t, 0, renewed.code, renewed.stderr)
	assert.Equal(t, "renewed", renewed.object(t)["outcome"])
	assert.Equal(t, 60000.0, renewed.object(t)["remaining_ms"])

	sh.stdin = strings.NewReader(`{"total": 3}`)
	published := sh.run(t, append([]string{"publish", "--then-release"}, token...)...)
	assert.Equal(t, 0, published.code, published.stderr)
	assert.Equal(t, "accepted", published.object(t)["outcome"])
	assert.Equal(t, 1.0, published.object(t)["revision"])
	assert.NoError(t, uuid.Validate(published.object(t)["operation_key"].(string)))

	released := sh.run(t, append([]string{"release"}, token...)...)
	assert.Equal(t, 0, released.code, released.stderr)
	assert.Equal(t, "replayed", released.object(t)["outcome"], "--then-release had released it")
}

func TestARefusalExitsWith10AndPrintsOutcomeAndReason(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	lease(t, dsn, "r", "w1")
	refused := []struct {
		args            string
		outcome, reason any
	}{
		{"acquire r --owner w2 --ttl 1h", "held", nil},
		{"renew r --owner w2 --generation 1 --ttl 1h", "refused", "wrong_owner"},
		{"release r --owner w1 --generation 2", "refused", "ahead_of_issuer"},
		{"publish r --owner w1 --generation 2", "rejected", "ahead_of_issuer"},
		{"check nothing --owner w1 --generation 1", "rejected", "not_found"},
		{"seize r --generation 9 --by anna", "refused", nil},
		{"remove r --generation 1 --by anna", "held", nil},
		{"remove nothing --generation 1 --by anna", "not_found", nil},
	}
	for _, c := range refused {
		t.Run(c.args, func(t *testing.T) {
			got := sh.run(t, append(strings.Fields(c.args), "-o", "json")...)
			assert.Equal(t, 10, got.code, got.stderr)
			assert.Equal(t, c.outcome, got.object(t)["outcome"])
			assert.Equal(t, c.reason, got.object(t)["reason"])

			table := sh.run(t, strings.Fields(c.args)...)
			assert.Equal(t, 10, table.code)
			assert.Regexp(t, fmt.Sprintf(`(?m)^outcome +%s$`, c.outcome), table.stdout)
			assert.NotEmpty(t, table.stderr, "a person learns what to do next")
		})
	}
}

func TestAnUnknownOutcomeIsARefusal(t *testing.T) {
	t.Parallel()
	a := &app{stdout: &strings.Builder{}, stderr: &strings.Builder{}}
	row := struct {
		Outcome string `json:"outcome"`
	}{"deferred"}
	assert.Equal(t, refusal{"deferred"}, a.answer(row, row.Outcome, nil, "acquired", "replayed"))
}

func TestPublishTakesAFileAndEveryParameter(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	lease(t, dsn, "r", "w1")
	file := writeFile(t, "a,b\n1,2\n")
	args := strings.Fields("publish r --owner w1 --generation 1 --content-type text/csv --operation-key k1 --policy unexpired -o json --file " + file)

	first := sh.run(t, args...)
	require.Equal(t, 0, first.code, first.stdout)
	assert.Equal(t, "k1", first.object(t)["operation_key"])
	again := sh.run(t, args...)
	assert.Equal(t, "replayed", again.object(t)["outcome"])
	assert.Equal(t, first.object(t)["revision"], again.object(t)["revision"])

	stored := sh.run(t, "publications", "--payload", "-o", "json").array(t)
	require.Len(t, stored, 1)
	assert.Equal(t, "a,b\n1,2\n", stored[0]["payload"])
	assert.Equal(t, "text/csv", stored[0]["content_type"])

	old := sh.run(t, "publish", "r", "--owner", "w1", "--generation", "1", "--source-as-of", "2020-01-01T00:00:00Z", "--max-source-age", "1h", "-o", "json")
	assert.Equal(t, 10, old.code)
	assert.Equal(t, "stale_source", old.object(t)["reason"])

	conflict := sh.run(t, "publish", "r", "--owner", "w1", "--generation", "1", "--operation-key", "k1")
	assert.Equal(t, 10, conflict.code)
	assert.Contains(t, conflict.stderr, "key_conflict")
}

func TestALatePublishCountsUntilSupersededOnly(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	lease(t, dsn, "r", "w1")
	expire(t, dsn, "r")
	token := []string{"r", "--owner", "w1", "--generation", "1", "-o", "json"}

	late := sh.run(t, append([]string{"publish", "--policy", "unexpired"}, token...)...)
	assert.Equal(t, 10, late.code)
	assert.Equal(t, "expired", late.object(t)["reason"])
	late = sh.run(t, append([]string{"publish"}, token...)...)
	assert.Equal(t, 0, late.code, late.stdout)
	assert.GreaterOrEqual(t, late.object(t)["late_ms"], 1000.0)

	listed := sh.run(t, "publications", "--late", "-o", "json").array(t)
	require.Len(t, listed, 1)
	assert.Equal(t, late.object(t)["late_ms"], listed[0]["late_ms"])
}

func TestCheckSaysThatItIsAdvice(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	got := on(dsn).run(t, "check", "r", "--owner", "w1", "--generation", "1", "-o", "json")
	assert.Equal(t, 0, got.code)
	assert.Equal(t, "ok", got.object(t)["outcome"])
	assert.Contains(t, got.stderr, "advice only")
	assert.Contains(t, shell{}.run(t, "check", "--help").stdout, "advice")
}

func TestDiagnoseExplainsAndExitsWith0(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	expire(t, dsn, "r")
	lease(t, dsn, "r", "w2")
	sh := on(dsn)
	token := []string{"diagnose", "r", "--owner", "w1", "--generation", "1", "-o", "json"}

	without := sh.run(t, token...)
	assert.Equal(t, 0, without.code)
	assert.Equal(t, "unknown", without.object(t)["reason"])
	assert.Equal(t, false, without.object(t)["certain"])
	var now time.Time
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
	with := sh.run(t, append(token, "--attempted-at", now.Format(time.RFC3339Nano))...)
	assert.Equal(t, "superseded", with.object(t)["reason"])
	assert.Equal(t, "w2", with.object(t)["observed_owner"])
}

func TestOperatorsInterveneUnderTheirName(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	sh := on(dsn)
	lease(t, dsn, "r", "w1")

	seized := sh.run(t, "seize", "r", "--generation", "1", "--by", "anna", "--note", "host lost", "-o", "json")
	require.Equal(t, 0, seized.code, seized.stdout)
	assert.Equal(t, "seized", seized.object(t)["outcome"])
	assert.Equal(t, 2.0, seized.object(t)["generation"])
	assert.Equal(t, "w1", seized.object(t)["previous_owner"])
	assert.Equal(t, "replayed", sh.run(t, "seize", "r", "--generation", "1", "--by", "anna", "-o", "json").object(t)["outcome"])

	raised := sh.run(t, "raise-floor", "r", "--at-least", "100", "-o", "json")
	require.Equal(t, 0, raised.code, raised.stdout)
	assert.Equal(t, 100.0, raised.object(t)["floor_after"])
	all := sh.run(t, "raise-floor", "--all", "--at-least", "500", "-o", "json")
	assert.Equal(t, "raised", all.object(t)["outcome"])
	assert.Nil(t, all.object(t)["resource"])
	assert.Equal(t, "unchanged", sh.run(t, "raise-floor", "--all", "--at-least", "500", "-o", "json").object(t)["outcome"])

	removed := sh.run(t, "remove", "r", "--generation", "2", "--by", "anna", "-o", "json")
	require.Equal(t, 0, removed.code, removed.stdout)
	assert.Equal(t, "removed", removed.object(t)["outcome"])
	assert.Equal(t, 501, int(lease(t, dsn, "r", "w2").Generation))

	var by, note string
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(),
		"SELECT performed_by, note FROM fence.intervention WHERE operation = 'seize'").Scan(&by, &note))
	assert.Equal(t, "anna host lost", by+" "+note)
}

func TestTheEnvironmentNamesTheTokenAndFlagsWin(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	lease(t, dsn, "r", "w1")
	sh := on(dsn)
	sh.env = append(sh.env, "FENCE_RESOURCE=r", "FENCE_OWNER=w1", "FENCE_GENERATION=1")

	assert.Equal(t, 0, sh.run(t, "renew", "--ttl", "1h").code)
	assert.Equal(t, "wrong_owner", sh.run(t, "renew", "--ttl", "1h", "--owner", "w2", "-o", "json").object(t)["reason"])
	assert.Equal(t, "ahead_of_issuer", sh.run(t, "renew", "--ttl", "1h", "--generation", "2", "-o", "json").object(t)["reason"])
	assert.Equal(t, "not_found", sh.run(t, "renew", "other", "--ttl", "1h", "-o", "json").object(t)["reason"])
	assert.Equal(t, "held", sh.run(t, "acquire", "--ttl", "1h", "-o", "json").object(t)["outcome"])

	sh.env = append(sh.env, "FENCE_GENERATION=many")
	bad := sh.run(t, "renew", "--ttl", "1h")
	assert.Equal(t, 2, bad.code)
	assert.Contains(t, bad.stderr, "FENCE_GENERATION")
	assert.Equal(t, 2, sh.run(t, "seize", "--by", "anna").code, "an intervention names what it acts on")
}

func TestPruneRunsToTheEndInBatches(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	insertOldRejections(t, dsn, 25)
	got := on(dsn).run(t, "prune", "--older-than", "30d", "--batch", "10", "-o", "json", "-v")
	require.Equal(t, 0, got.code, got.stdout)
	removed := map[string]any{}
	for _, row := range got.array(t) {
		removed[row["table_name"].(string)] = row["removed"]
	}
	assert.Equal(t, map[string]any{"publication_key": 0.0, "late_publication": 0.0, "rejection": 25.0, "intervention": 0.0}, removed)
	assert.Contains(t, got.stderr, "removed so far: publication_key 0, late_publication 0, rejection 10, intervention 0")
}

func insertOldRejections(t *testing.T, dsn string, n int) {
	t.Helper()
	execute(t, connect(t, dsn), `
		INSERT INTO fence.rejection (resource, rejection_id, operation, reason, generation, owner, first_at, last_at, observed_at)
		SELECT 'r' || i, gen_random_uuid(), 'publish', 'superseded', 1, 'w', now() - interval '90 days', now() - interval '90 days', now()
		  FROM generate_series(1, $1) i`, n)
}

func TestAboutAndVersionNameTheContract(t *testing.T) {
	t.Parallel()
	about := on(newDatabase(t)).run(t, "about", "-o", "json").object(t)
	version := shell{}.run(t, "version", "-o", "json").object(t)
	assert.Equal(t, about["contract_version"], version["contract_version"])
	assert.Equal(t, "postgres", about["engine"])
	assert.Equal(t, 6.0, about["schema_version"])
}

func TestANewerContractIsSaidAloud(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	conn := connect(t, dsn)
	var source string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_get_functiondef('fence.about'::regproc)").Scan(&source))
	execute(t, conn, strings.Replace(source, "contract_version := 1", "contract_version := "+strconv.Itoa(contractVersion+1), 1))
	got := on(dsn).run(t, "about")
	assert.Equal(t, 0, got.code)
	assert.Contains(t, got.stderr, "use a newer fencectl")
}
