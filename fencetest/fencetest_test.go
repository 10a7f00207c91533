package fencetest_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencectl/fencectl/fencetest"
	"github.com/fencectl/fencectl/gen/fence"
	"github.com/fencectl/fencectl/gen/fencepg"
)

func TestCallersOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db := fencetest.Start(t)
	ctx := context.Background()
	config, err := fencepg.ParseConfig(db.DSN(), "callers")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	acquire := func(t *testing.T, resource string) fence.Token {
		got, err := fencepg.New(pool).Acquire(ctx, fence.AcquireParams{Resource: resource, Owner: "o", TTLMS: 60_000})
		require.NoError(t, err)
		require.Equal(t, fence.OutcomeAcquired, got.Outcome)
		require.True(t, got.Accepted())
		return fence.Token{Resource: resource, Owner: "o", Generation: *got.Generation}
	}

	t.Run("an expired acquisition still counts, a superseded one does not", func(t *testing.T) {
		t.Parallel()
		token, procs := acquire(t, "story"), fencepg.New(pool)
		db.Expire("story")
		accepted, err := procs.Publish(ctx, fence.PublishParams{Token: token, Payload: "{}", OperationKey: new("k")})
		require.NoError(t, err)
		assert.Equal(t, fence.OutcomeAccepted, accepted.Outcome)
		assert.NotNil(t, accepted.LateMS)
		strict, err := procs.Publish(ctx, fence.PublishParams{Token: token, Payload: "{}", Policy: fence.PolicyUnexpired})
		require.NoError(t, err)
		assert.False(t, strict.Accepted())
		assert.Equal(t, fence.ReasonExpired, *strict.Reason)

		next := db.Supersede("story")
		assert.Greater(t, next.Generation, token.Generation)
		refused, err := procs.Renew(ctx, fence.RenewParams{Token: token, TTLMS: 60_000})
		require.NoError(t, err)
		assert.Equal(t, fence.ReasonSuperseded, *refused.Reason)
		assert.Equal(t, next.Owner, *refused.ObservedOwner)
		why, err := procs.Diagnose(ctx, fence.DiagnoseParams{Token: token, AttemptedAt: refused.ObservedAt})
		require.NoError(t, err)
		assert.Equal(t, fence.ReasonSuperseded, why.Reason)
	})

	t.Run("InTx commits what is fenced, and refuses what is not", func(t *testing.T) {
		t.Parallel()
		token := acquire(t, "fenced")
		_, err := pool.Exec(ctx, "CREATE TABLE written (n int)")
		require.NoError(t, err)
		write := func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO written VALUES (1)")
			return err
		}
		require.NoError(t, fencepg.InTx(ctx, pool, token, write))
		assert.Equal(t, 1, count(t, pool))

		broken := errors.New("broken")
		require.ErrorIs(t, fencepg.InTx(ctx, pool, token, func(tx pgx.Tx) error { return errors.Join(write(tx), broken) }), broken)
		assert.Equal(t, 1, count(t, pool))

		db.Supersede("fenced")
		err = fencepg.InTx(ctx, pool, token, write)
		assert.True(t, fence.IsRefused(err))
		var refusal *fence.Error
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, fence.ReasonSuperseded, refusal.Reason)
		assert.Equal(t, 1, count(t, pool))
		var recorded int
		require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM fence.rejections WHERE resource = 'fenced'").Scan(&recorded))
		assert.Equal(t, 1, recorded, "the refusal is recorded")
	})

	t.Run("a commit whose answer is lost is unknown", func(t *testing.T) {
		t.Parallel()
		token := acquire(t, "lost")
		err := fencepg.InTx(ctx, pool, token, func(tx pgx.Tx) error { return tx.Conn().PgConn().Conn().Close() })
		assert.True(t, fence.IsOutcomeUnknown(err), "%v", err)
	})

	t.Run("require says why in a typed error", func(t *testing.T) {
		t.Parallel()
		token := acquire(t, "required")
		db.Supersede("required")
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		defer tx.Rollback(ctx)
		_, err = fencepg.New(pool).Tx(tx).Require(ctx, fence.RequireParams{Token: token})
		var refusal *fence.Error
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, fence.KindRefused, refusal.Kind)
		assert.Equal(t, fence.ReasonSuperseded, refusal.Reason)
		assert.Equal(t, "fence.require", refusal.Routine)
	})

	t.Run("an observer sees the calls, and a bad argument is named", func(t *testing.T) {
		t.Parallel()
		var log strings.Builder
		procs := fencepg.New(pool, fencepg.WithObserver(fence.SlogObserver(slog.New(slog.NewTextHandler(&log, nil)))))
		_, err := procs.Acquire(ctx, fence.AcquireParams{Resource: "r", Owner: "o", TTLMS: 0})
		assert.True(t, fence.IsInvalidArgument(err))
		var invalid *fence.Error
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, "ttl_ms", invalid.Argument)
		assert.Contains(t, log.String(), "routine=fence.acquire")
		assert.Contains(t, log.String(), "kind=invalid_argument")
	})

	t.Run("a dedicated connection calls, too", func(t *testing.T) {
		t.Parallel()
		own, err := fencepg.Dedicated(ctx, config)
		require.NoError(t, err)
		token := acquire(t, "dedicated")
		renewed, err := own.Renew(ctx, fence.RenewParams{Token: token, TTLMS: 90_000})
		require.NoError(t, err)
		assert.True(t, renewed.Accepted())
		require.NoError(t, own.Close())
	})

	t.Run("the operator's calls", func(t *testing.T) {
		t.Parallel()
		token, procs := acquire(t, "operated"), fencepg.New(pool)
		floor, err := procs.RaiseFloor(ctx, fence.RaiseFloorParams{Resource: new("operated"), AtLeast: 7})
		require.NoError(t, err)
		assert.Equal(t, fence.OutcomeRaised, floor.Outcome)
		seized, err := procs.Seize(ctx, fence.SeizeParams{Resource: "operated", Generation: token.Generation, By: "op", Note: new("test")})
		require.NoError(t, err)
		assert.Equal(t, fence.OutcomeSeized, seized.Outcome)
		removed, err := procs.Remove(ctx, fence.RemoveParams{Resource: "operated", Generation: *seized.Generation, By: "op"})
		require.NoError(t, err)
		assert.Equal(t, fence.OutcomeRemoved, removed.Outcome)
		pruned, err := procs.Prune(ctx, fence.PruneParams{OlderThanMS: 1_000_000})
		require.NoError(t, err)
		assert.NotEmpty(t, pruned)
	})
}

func TestADatabaseWithoutAFenceSaysSo(t *testing.T) {
	t.Parallel()
	db := fencetest.Start(t)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.DSN())
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "DROP SCHEMA fence CASCADE")
	require.NoError(t, err)
	_, err = fencepg.New(conn).Acquire(ctx, fence.AcquireParams{Resource: "r", Owner: "o", TTLMS: 1})
	assert.True(t, fence.IsNotInstalled(err), "%v", err)
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), "SELECT count(*) FROM written").Scan(&n))
	return n
}
