-- release($1 resource, $2 owner, $3 generation)
--
-- Same effect: released_at in the rows of lease and lease_term, both locked, identity first, before the clock
-- is read.
--
-- Left out: validation, the cause of a refusal and its record, the answer to a repeated call. No row = refused.
WITH lease AS MATERIALIZED (
    SELECT l.generation, l.owner, l.released_at
      FROM fence.lease l
     WHERE l.resource = $1
       FOR NO KEY UPDATE
), term AS MATERIALIZED (
    SELECT t.generation
      FROM fence.lease_term t
     WHERE t.resource = $1 AND EXISTS (SELECT FROM lease)
       FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
      FROM term, lease
     WHERE lease.generation = $3 AND lease.owner = $2 AND lease.released_at IS NULL
), identity AS (
    UPDATE fence.lease l
       SET released_at = clock.now
      FROM clock
     WHERE l.resource = $1
)
UPDATE fence.lease_term t
   SET released_at = clock.now
  FROM clock
 WHERE t.resource = $1
RETURNING 'released', t.released_at
