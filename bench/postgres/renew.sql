-- renew($1 resource, $2 owner, $3 generation, $4 ttl_ms)
--
-- Same effect: one new version of the row in lease_term, judged against the row as locked, with a clock that
-- is read once the lock is there. A bare UPDATE with clock_timestamp() in SET would be shorter, and wrong: it
-- reads the clock before it waits, so a renewal that waited for a transaction which then rolled back would be
-- shorter than asked for.
--
-- Left out: validation, the cause of a refusal and its record. No row = refused.
WITH term AS MATERIALIZED (
    SELECT t.generation, t.owner, t.released_at
      FROM fence.lease_term t
     WHERE t.resource = $1
       FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
      FROM term
     WHERE term.generation = $3 AND term.owner = $2 AND term.released_at IS NULL
)
UPDATE fence.lease_term t
   SET ttl_ms = $4,
       lease_until = clock.now + $4::bigint * interval '1 millisecond',
       renewed_at = clock.now,
       renewals = t.renewals + 1
  FROM clock
 WHERE t.resource = $1
RETURNING 'renewed', t.lease_until
