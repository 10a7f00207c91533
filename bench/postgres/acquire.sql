-- acquire($1 resource, $2 owner, $3 ttl_ms, $4 request_id)
--
-- Same effect on a lease that exists and is over: a new version of the rows in lease and lease_term with the
-- next generation. Both rows are locked, identity first; then the clock; then it decides.
--
-- The next generation is above the row's own, the row's floor and the global floor, and it jumps with the epoch;
-- it is given out only while this database is the one that the epoch names, since a promoted standby or a restored
-- backup would otherwise give numbers out again.
--
-- Left out: what begins another epoch when it is not (no row, then), validation, who holds the lease when it is
-- refused, the answer to a repeated request, the bound on the wait, the first acquisition of a name. No row = held.
WITH lease AS MATERIALIZED (
    SELECT l.generation, l.floor, l.epoch
      FROM fence.lease l
     WHERE l.resource = $1
       FOR NO KEY UPDATE
), term AS MATERIALIZED (
    SELECT t.lease_until, t.released_at
      FROM fence.lease_term t
     WHERE t.resource = $1 AND EXISTS (SELECT FROM lease)
       FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, term.lease_until, term.released_at
      FROM term
), granted AS MATERIALIZED (
    SELECT clock.now, e.epoch,
           greatest(lease.generation, lease.floor, f.at_least) + 1 + (e.epoch - lease.epoch) * 4294967296 AS generation
      FROM clock, lease, fence.floor f, fence.epoch e
     WHERE (clock.released_at IS NOT NULL OR clock.lease_until <= clock.now)
       AND f.only_row AND e.only_row
       AND e.system_identifier = (pg_control_system()).system_identifier
       AND e.timeline = ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
), identity AS (
    UPDATE fence.lease l
       SET generation = granted.generation,
           owner = $2,
           acquired_at = granted.now,
           released_at = NULL,
           request_id = $4,
           epoch = granted.epoch
      FROM granted
     WHERE l.resource = $1
)
UPDATE fence.lease_term t
   SET generation = granted.generation,
       owner = $2,
       attributes = NULL,
       ttl_ms = $3,
       lease_until = granted.now + $3::bigint * interval '1 millisecond',
       released_at = NULL,
       renewed_at = granted.now,
       renewals = 0
  FROM granted
 WHERE t.resource = $1
RETURNING 'acquired', t.generation, t.lease_until
