-- check($1 resource, $2 owner, $3 generation)
--
-- Same effect: the lease row is locked until the transaction ends. The clock is read after that, for how
-- late the caller is.
--
-- Left out: validation, the cause of a refusal and its record, the bound on idle transactions. No row =
-- rejected. In autocommit nothing is written, and yet the lock has to be made durable: a commit like the others.
WITH lease AS MATERIALIZED (
    SELECT l.generation, l.owner, l.released_at
      FROM fence.lease l
     WHERE l.resource = $1
       FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
      FROM lease
     WHERE lease.generation = $3 AND lease.owner = $2 AND lease.released_at IS NULL
)
SELECT 'ok',
       CASE WHEN t.lease_until < clock.now THEN ceil(extract(epoch FROM clock.now - t.lease_until) * 1000)::bigint END
  FROM clock
  JOIN fence.lease_term t ON t.resource = $1
