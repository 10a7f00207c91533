package codegen_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/gen/fence"
	"github.com/fencectl/fencectl/gen/fencemssql"
	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

// TestTheCallersBuildNothingButTheirDriver holds what a user's build inherits by importing them.
func TestTheCallersBuildNothingButTheirDriver(t *testing.T) {
	t.Parallel()
	for name, allowed := range map[string][]string{
		"fence":      nil,
		"fencepg":    {"github.com/jackc/", "golang.org/x/text/", "golang.org/x/sync/"},
		"fencemssql": {"github.com/microsoft/go-mssqldb", "github.com/golang-sql/", "github.com/google/uuid", "github.com/shopspring/decimal", "golang.org/x/"},
	} {
		path := "github.com/fencectl/fencectl/gen/" + name
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", path).Output()
		require.NoError(t, err)
		for dep := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(dep, "github.com/fencectl/fencectl/gen/") {
				continue
			}
			known := false
			for _, prefix := range allowed {
				known = known || strings.HasPrefix(dep, prefix)
			}
			assert.True(t, known, "%s builds %s", name, dep)
		}
	}
}

func TestCallersOnTSQL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn := startTSQL(t)
	connector, err := fencemssql.NewConnector(dsn, "callers")
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { _ = pool.Close() })
	procs := fencemssql.New(pool)

	request := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	ask := fence.AcquireParams{Resource: "r", Owner: "o", TTLMS: 60_000, RequestID: &request, Attributes: json.RawMessage(`{"pod": "ä"}`)}
	got, err := procs.Acquire(ctx, ask)
	require.NoError(t, err)
	require.Equal(t, fence.OutcomeAcquired, got.Outcome)
	assert.WithinDuration(t, time.Now().Add(time.Minute), got.LeaseUntil, 30*time.Second, "UTC")
	assert.JSONEq(t, `{"pod": "ä"}`, string(got.HolderAttributes))
	again, err := procs.Acquire(ctx, ask)
	require.NoError(t, err)
	assert.Equal(t, fence.OutcomeReplayed, again.Outcome, "the request's id arrives as it was sent")

	token := fence.Token{Resource: "r", Owner: "o", Generation: *got.Generation}
	asOf := time.Now().Add(-time.Hour).In(time.FixedZone("elsewhere", 3*3600))
	published, err := procs.Publish(ctx, fence.PublishParams{Token: token, Payload: strings.Repeat("x", 1<<20), SourceAsOf: &asOf, MaxSourceAgeMS: new((90 * time.Minute).Milliseconds())})
	require.NoError(t, err)
	assert.Equal(t, fence.OutcomeAccepted, published.Outcome)
	renewed, err := procs.Renew(ctx, fence.RenewParams{Token: token, TTLMS: 1000})
	require.NoError(t, err)
	assert.True(t, renewed.Accepted())

	_, err = pool.ExecContext(ctx, "CREATE TABLE written (n int)")
	require.NoError(t, err)
	write := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO written VALUES (1)")
		return err
	}
	require.NoError(t, fencemssql.InTx(ctx, pool, token, write))
	seized, err := procs.Seize(ctx, fence.SeizeParams{Resource: "r", Generation: token.Generation, By: "op", Note: new("test")})
	require.NoError(t, err)
	assert.Equal(t, fence.OutcomeSeized, seized.Outcome)
	err = fencemssql.InTx(ctx, pool, token, write)
	var refusal *fence.Error
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, fence.KindRefused, refusal.Kind)
	assert.Equal(t, fence.ReasonSuperseded, refusal.Reason)
	var written int
	require.NoError(t, pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM written").Scan(&written))
	assert.Equal(t, 1, written)

	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = procs.Tx(tx).Require(ctx, fence.RequireParams{Token: token})
	_ = tx.Rollback()
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, fence.ReasonSuperseded, refusal.Reason)

	why, err := procs.Diagnose(ctx, fence.DiagnoseParams{Token: token, AttemptedAt: refused(ctx, t, procs, token).ObservedAt})
	require.NoError(t, err)
	assert.True(t, why.Certain)
	_, err = procs.Acquire(ctx, fence.AcquireParams{Resource: "r", Owner: "o", TTLMS: 0})
	assert.True(t, fence.IsInvalidArgument(err))
	var invalid *fence.Error
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "ttl_ms", invalid.Argument)

	for _, resource := range []*string{nil, new("r")} {
		floor, err := procs.RaiseFloor(ctx, fence.RaiseFloorParams{Resource: resource, AtLeast: 1000})
		require.NoError(t, err)
		assert.Equal(t, fence.OutcomeRaised, floor.Outcome)
	}
	removed, err := procs.Remove(ctx, fence.RemoveParams{Resource: "r", Generation: *seized.Generation, By: "op"})
	require.NoError(t, err)
	assert.True(t, removed.Accepted())
	_, err = procs.Prune(ctx, fence.PruneParams{OlderThanMS: 1_000_000})
	require.NoError(t, err)

	own, err := fencemssql.Dedicated(ctx, connector)
	require.NoError(t, err)
	about, err := own.About(ctx)
	require.NoError(t, err)
	assert.Equal(t, int32(fence.ContractVersion), about.ContractVersion)
	require.NoError(t, own.Close())
}

func refused(ctx context.Context, t *testing.T, procs fence.Procedures, token fence.Token) fence.ReleaseResult {
	t.Helper()
	r, err := procs.Release(ctx, fence.ReleaseParams{Token: token})
	require.NoError(t, err)
	require.Equal(t, fence.OutcomeRefused, r.Outcome)
	require.False(t, r.Accepted())
	return r
}

// startTSQL starts a throwaway server with the fence in it.
func startTSQL(t *testing.T) (dsn string) {
	t.Helper()
	ctx := context.Background()
	server, err := devdb.StartBabelfish(ctx, devdb.Options{Settings: devdb.TestSettings()})
	if errors.Is(err, devdb.ErrNoBabelfish) {
		t.Skip("not run: there is no Babelfish on this machine")
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(ctx, "callers"))
	opened, err := engine.Open(server.DSN("callers"), engine.Options{})
	require.NoError(t, err)
	_, err = deploy.New(opened).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	require.NoError(t, err)
	return server.DSN("callers")
}

func TestAContractThatIsNotKnownIsAnError(t *testing.T) {
	t.Parallel()
	for version, known := range map[int32]bool{
		fence.ContractVersion - 1: false, fence.ContractVersion: true, fence.ContractVersion + 1: true, fence.ContractVersion + 2: false,
	} {
		err := fence.KnowContract(version)
		assert.Equal(t, known, err == nil, version)
		assert.Equal(t, !known, fence.KindOf(err) == fence.KindContract, version)
	}
}

func TestAnUnknownWordIsARefusal(t *testing.T) {
	t.Parallel()
	assert.False(t, fence.PublishResult{Outcome: "accepted_with_care"}.Accepted())
	assert.False(t, fence.AcquireResult{}.Accepted())
	assert.True(t, fence.AcquireResult{Outcome: fence.OutcomeReplayed}.Accepted())
}
