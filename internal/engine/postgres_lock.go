package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// migrationLock is the key of the advisory lock, the letters "fencectl". Advisory locks belong to one database,
// so that two databases of a server migrate at the same time.
const migrationLock int64 = 0x66656e636563746c

// lock takes the migration lock. It asks again and again instead of waiting in the server: a session that
// waits there has a snapshot, and CREATE INDEX CONCURRENTLY would wait for it, in a circle.
func (s *postgresSession) lock(ctx context.Context, options WriteOptions) error {
	deadline := time.Now().Add(options.LockTimeout)
	pause, nextReport := 20*time.Millisecond, time.Now()
	for {
		err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", migrationLock).Scan(&s.locked)
		if err != nil || s.locked {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 || options.Waiting != nil && time.Now().After(nextReport) {
			holders, err := s.holders(ctx, lockHolders)
			if err != nil {
				return err
			}
			if left <= 0 {
				return lockTimeout(options.LockTimeout, "another session holds the migration lock", holders)
			}
			options.Waiting(holders)
			nextReport = time.Now().Add(5 * time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

func lockTimeout(waited time.Duration, what string, holders []Holder) error {
	known := &Error{Kind: KindLockTimeout, Message: what, Holders: holders}
	if waited > 0 {
		known.Message = fmt.Sprintf("waited %s: %s", waited, what)
	}
	if len(holders) > 0 {
		known.Message += " (" + join(holders) + ")"
		known.Hint = "wait for it, or end it: SELECT pg_terminate_backend(pid)"
	}
	return known
}

// lockHolders are the sessions with the migration lock of this database.
const lockHolders = `l.locktype = 'advisory' AND l.objsubid = 1
   AND (l.classid::bigint << 32 | l.objid::bigint) = ` + migrationLockText

// tableHolders are the sessions that use a table of ours.
const tableHolders = `l.locktype = 'relation'
   AND l.relation IN (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'fence')`

// migrationLockText is migrationLock in SQL.
const migrationLockText = "7378424937698260076"

func (s *postgresSession) holders(ctx context.Context, which string) ([]Holder, error) {
	rows, err := s.conn.Query(ctx, `
SELECT DISTINCT l.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
       coalesce(host(a.client_addr), CASE WHEN a.client_port = -1 THEN 'local socket' ELSE '' END),
       coalesce(a.state, ''), a.backend_start, coalesce(a.xact_start, a.query_start)
  FROM pg_catalog.pg_locks l
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.granted AND l.pid <> pg_catalog.pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
   AND `+which+`
 ORDER BY l.pid`)
	if err != nil {
		return nil, fmt.Errorf("look for the holder: %w", err)
	}
	holders, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Holder, error) {
		var h Holder
		err := row.Scan(&h.PID, &h.User, &h.ApplicationName, &h.ClientAddress, &h.State, &h.ConnectedAt, &h.Since)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the holder: %w", err)
	}
	return holders, nil
}

// withHolders names the sessions that use our tables when one of them could not be locked in time.
func (s *postgresSession) withHolders(ctx context.Context, err error) error {
	var known *Error
	if !errors.As(err, &known) || known.Kind != KindLockTimeout || known.Holders != nil || s.conn.IsClosed() {
		return err
	}
	holders, lookup := s.holders(ctx, tableHolders)
	if lookup != nil || len(holders) == 0 {
		return err
	}
	return &Error{
		Kind: KindLockTimeout, Err: err, Holders: holders, Message: "a table is in use (" + join(holders) + ")",
		Hint: "wait for it, or end it: SELECT pg_terminate_backend(pid)",
	}
}

func join(holders []Holder) string {
	var names []string
	for _, h := range holders {
		names = append(names, h.String())
	}
	return strings.Join(names, "; ")
}
