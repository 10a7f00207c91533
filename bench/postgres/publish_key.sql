-- publish($1 resource, $2 owner, $3 generation, $4 payload, $5 content_type, $6 operation_key)
--
-- As publish.sql, and the row in publication_key with the same fingerprint, so that a repeated call cannot
-- have a second effect: here it fails on the primary key.
--
-- Left out, besides what publish.sql leaves out: the answer to a repeated call.
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
), remembered AS (
    INSERT INTO fence.publication_key (
        resource, generation, owner, operation_key, fingerprint, revision, published_at, late_ms)
    SELECT $1, $3, $2, $6,
           sha256(convert_to(concat_ws(E'\n', $5::text, 'until_superseded', 'false', $4::text), 'UTF8')),
           published.revision, published.published_at, published.late_ms
      FROM published
)
UPDATE fence.lease l
   SET revision = published.revision,
       accepted_generation = $3
  FROM published
 WHERE l.resource = $1
RETURNING 'accepted', published.published_at, published.revision, published.late_ms
