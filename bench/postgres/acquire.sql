-- acquire($1 resource, $2 owner, $3 ttl_ms, $4 request_id)
--
-- Same effect on a lease that exists and is over: a new version of the rows in lease and lease_term with the
-- next generation. Both rows are locked, identity first; then the clock; then it decides.
--
-- The next generation is above the row's own, the row's floor and the global floor. Left out is what finds
-- out that this database is a promoted standby or a restored backup (epoch), although without it a number
-- can be given out twice: whoever writes this by hand rarely thinks of it, and it makes the comparison
-- harder for the routine. Also left out: validation, who holds the lease when it is refused, the answer to a
-- repeated request, the bound on the wait, the first acquisition of a name. No row = held.
WITH lease AS MATERIALIZED (
    SELECT l.generation, l.floor
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
    SELECT clock.now, greatest(lease.generation, lease.floor, f.at_least) + 1 AS generation
      FROM clock, lease, fence.floor f
     WHERE clock.released_at IS NOT NULL OR clock.lease_until <= clock.now
), identity AS (
    UPDATE fence.lease l
       SET generation = granted.generation,
           owner = $2,
           acquired_at = granted.now,
           released_at = NULL,
           request_id = $4
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
