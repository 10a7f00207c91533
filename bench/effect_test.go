package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testServer is one throwaway server for all tests of this package.
var testServer = sync.OnceValues(func() (*server, error) {
	return openServer(context.Background(), os.Getenv("FENCECTL_BENCH_TEST_DSN"))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if s, err := testServer(); err == nil {
		s.close(context.Background(), os.Stderr)
	}
	os.Exit(code)
}

// written lists the comparisons with hand-written SQL that writes, and where its clock goes.
func written() map[string]string {
	return map[string]string{
		"publish":         "SELECT published_at FROM fence.publication WHERE resource = $1",
		"publish-key":     "SELECT published_at FROM fence.publication_key WHERE resource = $1",
		"renew":           "SELECT renewed_at FROM fence.lease_term WHERE resource = $1",
		"acquire":         "SELECT acquired_at FROM fence.lease WHERE resource = $1",
		"acquire-request": "SELECT acquired_at FROM fence.lease WHERE resource = $1",
		"release":         "SELECT released_at FROM fence.lease_term WHERE resource = $1",
	}
}

// scene is a comparison with one client on a database of its own.
type scene struct {
	client    client
	conn      *pgx.Conn
	resources []string // in the order in which the calls take them
}

func open(t *testing.T, name string) scene {
	t.Helper()
	ctx := t.Context()
	s, err := testServer()
	require.NoError(t, err)
	chosen, err := choose([]string{name})
	require.NoError(t, err)
	c := chosen[0]
	c.leases = []int{usualLeases}
	databases, drop, err := c.databases(ctx, s, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(drop)
	require.NoError(t, c.reset(ctx, databases))
	opened, closeClient, err := c.connect(ctx, databases, share{client: 0, of: 1})
	require.NoError(t, err)
	t.Cleanup(closeClient)
	conn, err := s.connect(ctx, databases[0].name)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return scene{client: opened, conn: conn, resources: share{client: 0, of: 1}.resources(usualLeases)}
}

// rows returns all that the tables hold of a resource. Of times it tells whether they are set.
func (s scene) rows(t *testing.T, resource string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, table := range []string{
		"lease", "lease_term", "publication", "publication_key", "late_publication", "rejection", "intervention",
	} {
		var content string
		require.NoError(t, s.conn.QueryRow(t.Context(), fmt.Sprintf(`
			SELECT coalesce(string_agg(whole.row::text, E'\n'), 'no row')
			  FROM (SELECT jsonb_object_agg(key, CASE WHEN key ~ '_(at|until|of)$' THEN to_jsonb(value <> 'null') ELSE value END) AS row
			          FROM fence.%s t, jsonb_each(to_jsonb(t) - 'resource' - 'request_id' - 'operation_key')
			         WHERE t.resource = $1
			         GROUP BY t.ctid) AS whole`, table), resource).Scan(&content))
		rows[table] = content
	}
	return rows
}

func TestHandWrittenSQLWritesTheSameRows(t *testing.T) {
	for name := range written() {
		t.Run(name, func(t *testing.T) {
			s := open(t, name)
			for _, side := range []int{measured, baseline} {
				_, err := s.client[side].time(t.Context())
				require.NoError(t, err)
			}
			first, second := s.rows(t, s.resources[0]), s.rows(t, s.resources[1])
			assert.Equal(t, first, second)
			assert.NotEqual(t, s.rows(t, s.resources[2]), first, "something was written")
		})
	}
}

func TestHandWrittenSQLReadsTheClockAfterTheLock(t *testing.T) {
	for name, clock := range written() {
		t.Run(name, func(t *testing.T) {
			s := open(t, name)
			ctx := t.Context()
			if before := s.client[baseline].before; before != nil {
				require.NoError(t, before(ctx))
			}
			blocker, err := s.conn.Begin(ctx)
			require.NoError(t, err)
			for _, table := range []string{"lease", "lease_term"} {
				_, err := blocker.Exec(ctx, "SELECT FROM fence."+table+" WHERE resource = $1 FOR UPDATE", s.resources[0])
				require.NoError(t, err)
			}
			done := make(chan error, 1)
			go func() { done <- s.client[baseline].call(ctx) }()
			require.Eventually(t, func() bool {
				var waits bool
				err := blocker.QueryRow(ctx, `
					SELECT EXISTS (SELECT FROM pg_stat_activity
					                WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
				return err == nil && waits
			}, 10*time.Second, 5*time.Millisecond)
			var unlocked, got time.Time
			require.NoError(t, blocker.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&unlocked))
			require.NoError(t, blocker.Rollback(ctx))
			require.NoError(t, <-done)
			require.NoError(t, s.conn.QueryRow(ctx, clock, s.resources[0]).Scan(&got))
			assert.True(t, got.After(unlocked), "%s, unlocked at %s", got, unlocked)
		})
	}
}
