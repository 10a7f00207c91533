package procedures

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres calls the routines on a PostgreSQL pool, connection or transaction.
type Postgres struct {
	DB PostgresDB
}

// PostgresDB is what pgxpool.Pool, pgx.Conn and pgx.Tx have in common that a call needs.
type PostgresDB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

var _ Procedures = Postgres{}

// one runs a call that answers with exactly one row, whose columns are the fields of T in their order.
func one[T any](ctx context.Context, db PostgresDB, sql string, args ...any) (T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
}

// Acquire calls fence.acquire.
func (p Postgres) Acquire(ctx context.Context, a AcquireParams) (AcquireResult, error) {
	return one[AcquireResult](ctx, p.DB, `
		SELECT outcome, generation, lease_until, remaining_ms, holder, holder_attributes
		  FROM fence.acquire($1, $2, $3, $4, $5)`,
		a.Resource, a.Owner, a.TTLMS, a.RequestID, a.Attributes)
}

// Renew calls fence.renew.
func (p Postgres) Renew(ctx context.Context, t Token, ttlMS int64) (RenewResult, error) {
	return one[RenewResult](ctx, p.DB, `
		SELECT outcome, reason, lease_until, remaining_ms,
		       observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.renew($1, $2, $3, $4)`,
		t.Resource, t.Owner, t.Generation, ttlMS)
}

// Release calls fence.release.
func (p Postgres) Release(ctx context.Context, t Token) (ReleaseResult, error) {
	return one[ReleaseResult](ctx, p.DB, `
		SELECT outcome, reason, observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.release($1, $2, $3)`,
		t.Resource, t.Owner, t.Generation)
}

// Publish calls fence.publish.
func (p Postgres) Publish(ctx context.Context, a PublishParams) (PublishResult, error) {
	if a.ContentType == "" {
		a.ContentType = "application/json"
	}
	return one[PublishResult](ctx, p.DB, `
		SELECT outcome, reason, published_at, revision, late_ms, attempted_at,
		       observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.publish($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		a.Resource, a.Owner, a.Generation, a.Payload, a.ContentType, a.OperationKey, policyOrDefault(a.Policy),
		a.SourceAsOf, a.MaxSourceAgeMS, a.ThenRelease)
}

// Check calls fence.check.
func (p Postgres) Check(ctx context.Context, t Token, policy string) (CheckResult, error) {
	return one[CheckResult](ctx, p.DB, `
		SELECT outcome, reason, late_ms, observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.check($1, $2, $3, $4)`,
		t.Resource, t.Owner, t.Generation, policyOrDefault(policy))
}

// Require calls fence.require.
func (p Postgres) Require(ctx context.Context, t Token, policy string) (CheckResult, error) {
	return one[CheckResult](ctx, p.DB, `
		SELECT outcome, reason, late_ms, observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.require($1, $2, $3, $4)`,
		t.Resource, t.Owner, t.Generation, policyOrDefault(policy))
}

// Diagnose calls fence.diagnose.
func (p Postgres) Diagnose(ctx context.Context, t Token, attemptedAt *time.Time, policy string) (DiagnoseResult, error) {
	return one[DiagnoseResult](ctx, p.DB, `
		SELECT reason, certain, observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.diagnose($1, $2, $3, $4, $5)`,
		t.Resource, t.Owner, t.Generation, attemptedAt, policyOrDefault(policy))
}

// Seize calls fence.seize.
func (p Postgres) Seize(ctx context.Context, a InterveneParams) (SeizeResult, error) {
	return one[SeizeResult](ctx, p.DB, `
		SELECT outcome, generation, previous_owner,
		       observed_generation, observed_owner, observed_lease_until, observed_at
		  FROM fence.seize($1, $2, $3, $4)`,
		a.Resource, a.Generation, a.By, a.Note)
}

// RaiseFloor calls fence.raise_floor.
func (p Postgres) RaiseFloor(ctx context.Context, resource *string, atLeast int64) (RaiseFloorResult, error) {
	return one[RaiseFloorResult](ctx, p.DB,
		`SELECT outcome, floor_before, floor_after FROM fence.raise_floor($1, $2)`, resource, atLeast)
}

// Remove calls fence.remove.
func (p Postgres) Remove(ctx context.Context, a InterveneParams) (RemoveResult, error) {
	return one[RemoveResult](ctx, p.DB,
		`SELECT outcome, floor_after FROM fence.remove($1, $2, $3, $4)`, a.Resource, a.Generation, a.By, a.Note)
}

// Prune calls fence.prune.
func (p Postgres) Prune(ctx context.Context, olderThanMS int64, batch int32) ([]PruneResult, error) {
	rows, err := p.DB.Query(ctx, `SELECT table_name, removed FROM fence.prune($1, $2)`, olderThanMS, batch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[PruneResult])
}

// About calls fence.about.
func (p Postgres) About(ctx context.Context) (AboutResult, error) {
	return one[AboutResult](ctx, p.DB, `
		SELECT contract_version, engine, engine_version, schema_version, timeline_source FROM fence.about()`)
}

func policyOrDefault(policy string) string {
	if policy == "" {
		return UntilSuperseded
	}
	return policy
}
