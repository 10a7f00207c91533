// Package fencetest gives tests a PostgreSQL database with the fence in it, and forces what is rare elsewhere: a lease
// that has run out, a worker that was superseded.
//
//	db := fencetest.Start(t)
//	pool, err := pgxpool.New(ctx, db.DSN())
//	…
//	db.Supersede("report:42") // and now the worker's publish is refused
package fencetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencectl/fencectl/gen/fence"
	"github.com/fencectl/fencectl/gen/fencepg"
	"github.com/fencectl/fencectl/internal/deploy"
	"github.com/fencectl/fencectl/internal/devdb"
	"github.com/fencectl/fencectl/internal/engine"
)

// Successor is the owner of the acquisition that Supersede makes.
const Successor = "fencetest-successor"

const (
	startPatience = 5 * time.Minute // a server may have to be downloaded
	callPatience  = 30 * time.Second
	databaseName  = "fencetest"
)

// Database is a throwaway database. Its methods fail the test that it was started for when they cannot do their work.
type Database struct {
	t   testing.TB
	dsn string
}

// Start starts a PostgreSQL server of the test's own with a migrated database, and stops it when the test ends. Tests
// that share a server take it from one Start in their parent test, and use resources of their own.
//
// It skips the test where no server can be had: none is installed, none can be downloaded, and there is no container.
func Start(t testing.TB) *Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	server, err := devdb.StartPostgres(ctx, devdb.Options{Settings: devdb.TestSettings()})
	if errors.Is(err, devdb.ErrNoPostgres) {
		t.Skipf("fencetest: not run: %v", err)
	}
	if err != nil {
		t.Fatalf("fencetest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callPatience)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("fencetest: %v", err)
		}
	})
	if err := server.CreateDatabase(ctx, databaseName, ""); err != nil {
		t.Fatalf("fencetest: %v", err)
	}
	d := &Database{t: t, dsn: server.DSN(databaseName)}
	if err := migrate(ctx, d.dsn); err != nil {
		t.Fatalf("fencetest: %v", err)
	}
	return d
}

func migrate(ctx context.Context, dsn string) error {
	opened, err := engine.Open(dsn, engine.Options{})
	if err != nil {
		return err
	}
	_, err = deploy.New(opened).Migrate(ctx, deploy.MigrateOptions{LockTimeout: deploy.DefaultLockTimeout})
	return err
}

// DSN connects to the database as its owner.
func (d *Database) DSN() string { return d.dsn }

// Expire lets the lease of a resource have run out a moment ago. The acquisition still counts until somebody takes
// over, as it does when a worker stalls. There has to be a lease.
func (d *Database) Expire(resource string) {
	d.t.Helper()
	d.do(func(ctx context.Context, conn *pgx.Conn) error { return expire(ctx, conn, resource) })
}

// Supersede lets another worker, the Successor, take over the resource, and returns what that one holds for an hour.
func (d *Database) Supersede(resource string) fence.Token {
	d.t.Helper()
	token := fence.Token{Resource: resource, Owner: Successor}
	d.do(func(ctx context.Context, conn *pgx.Conn) error {
		if err := expire(ctx, conn, resource); err != nil {
			return err
		}
		got, err := fencepg.New(conn).Acquire(ctx, fence.AcquireParams{Resource: resource, Owner: Successor, TTLMS: time.Hour.Milliseconds()})
		if err != nil {
			return err
		}
		if !got.Accepted() || got.Generation == nil {
			return errors.New("acquire answered " + got.Outcome.String())
		}
		token.Generation = *got.Generation
		return nil
	})
	return token
}

func expire(ctx context.Context, conn *pgx.Conn, resource string) error {
	// By a millisecond, so that no time that was seen before is later than the end.
	tag, err := conn.Exec(ctx, `
		UPDATE fence.lease_term SET lease_until = clock_timestamp() - interval '1 millisecond'
		 WHERE resource = $1 AND released_at IS NULL`, resource)
	if err == nil && tag.RowsAffected() != 1 {
		return errors.New("there is no lease to run out")
	}
	return err
}

func (d *Database) do(f func(context.Context, *pgx.Conn) error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		d.t.Fatalf("fencetest: %v", err)
	}
	defer conn.Close(ctx)
	if err := f(ctx, conn); err != nil {
		d.t.Fatalf("fencetest: %v", err)
	}
}
