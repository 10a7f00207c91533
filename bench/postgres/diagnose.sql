-- diagnose($1 resource, $2 owner, $3 generation, $4 attempted_at)
--
-- Same effect: none; one read of both rows, and the cause where they prove it (policy until_superseded).
--
-- Left out: validation, and callers above READ COMMITTED.
SELECT CASE
           WHEN l.generation IS NULL THEN 'unknown'
           WHEN l.generation > $3 THEN CASE WHEN l.acquired_at <= $4 THEN 'superseded' ELSE 'unknown' END
           WHEN l.generation < $3 THEN 'ahead_of_issuer'
           WHEN l.owner IS DISTINCT FROM $2 THEN 'wrong_owner'
           WHEN l.released_at IS NOT NULL THEN 'released'
           ELSE 'unknown'
       END,
       l.generation, l.owner, t.lease_until, clock_timestamp()
  FROM (VALUES (1)) AS one
  LEFT JOIN fence.lease l ON l.resource = $1
  LEFT JOIN fence.lease_term t ON t.resource = $1
