-- publish($1 resource, $2 owner, $3 generation, $4 payload, $5 content_type)
--
-- Same effect: the row in publication, and a new version of the row in lease (revision, accepted_generation).
-- The lease row is locked, so that no take-over commits first; then the clock; then the token is judged
-- against the row as locked. late_ms is stored with the publication, so the time row is read, without a lock:
-- a renewal must not wait for a publish.
--
-- Left out: validation, the cause of a refusal and its record, the row in late_publication (what is measured
-- is in time), the bound on idle transactions. And one thing is worse: a statement has one snapshot, so after
-- a wait for the lock late_ms comes from the time row as it was before the wait. No row = rejected.
WITH lease AS MATERIALIZED (
    SELECT l.generation, l.owner, l.released_at, l.revision
      FROM fence.lease l
     WHERE l.resource = $1
       FOR NO KEY UPDATE
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, lease.revision + 1 AS revision
      FROM lease
     WHERE lease.generation = $3 AND lease.owner = $2 AND lease.released_at IS NULL
), published AS (
    INSERT INTO fence.publication AS p (
        resource, revision, generation, owner, content_type, payload, published_at, late_ms)
    SELECT $1, clock.revision, $3, $2, $5, $4, clock.now,
           CASE WHEN t.lease_until < clock.now THEN ceil(extract(epoch FROM clock.now - t.lease_until) * 1000) END
      FROM clock
      JOIN fence.lease_term t ON t.resource = $1
    ON CONFLICT (resource) DO UPDATE
       SET revision = EXCLUDED.revision,
           generation = EXCLUDED.generation,
           owner = EXCLUDED.owner,
           content_type = EXCLUDED.content_type,
           payload = EXCLUDED.payload,
           source_as_of = EXCLUDED.source_as_of,
           published_at = EXCLUDED.published_at,
           late_ms = EXCLUDED.late_ms
    RETURNING p.published_at, p.revision, p.late_ms
)
UPDATE fence.lease l
   SET revision = published.revision,
       accepted_generation = $3
  FROM published
 WHERE l.resource = $1
RETURNING 'accepted', published.published_at, published.revision, published.late_ms
