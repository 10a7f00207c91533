-- Deletes old records, a batch of each kind a call: repeat it until every count is below the batch.
--
-- Leases stay, whatever their age (see remove), and so do the operation keys of a generation that may still
-- publish: a repeated call must find its first answer.
--
-- Parameters  p_older_than_ms  how old, ms
--             p_batch          at most this many rows of each kind; 1 to 100,000
-- Result      a row for each kind: table_name; removed
-- Locks       the rows it deletes; those that somebody holds are skipped
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.prune(
    p_older_than_ms bigint,
    p_batch integer DEFAULT 1000)
RETURNS TABLE (
    table_name text,
    removed bigint)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
DECLARE
    v_ignored boolean;
    v_before timestamptz;
BEGIN
    v_ignored := fence.assert_duration(p_older_than_ms, 'older_than_ms');
    IF p_batch IS NULL OR p_batch < 1 OR p_batch > 100000 THEN
        RAISE EXCEPTION 'invalid argument batch: %, allowed are 1 to 100000', coalesce(p_batch::text, 'NULL')
            USING ERRCODE = 'FN001', COLUMN = 'batch';
    END IF;
    v_before := clock_timestamp() - p_older_than_ms * interval '1 millisecond';

    -- A generation never comes back and a release is final, so a key that may go now may go for ever: the
    -- lease is read without a lock.
    table_name := 'publication_key';
    WITH old AS MATERIALIZED (
        SELECT k.resource, k.generation, k.owner, k.operation_key
          FROM fence.publication_key k
          LEFT JOIN fence.lease l
                 ON l.resource = k.resource AND l.generation = k.generation AND l.released_at IS NULL
         WHERE k.published_at < v_before AND l.resource IS NULL
         ORDER BY k.published_at
         LIMIT p_batch
           FOR UPDATE OF k SKIP LOCKED
    ), gone AS (
        DELETE FROM fence.publication_key k
         USING old
         WHERE k.resource = old.resource AND k.generation = old.generation
           AND k.owner = old.owner AND k.operation_key = old.operation_key
        RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
    RETURN NEXT;

    table_name := 'late_publication';
    WITH old AS MATERIALIZED (
        SELECT p.resource, p.generation, p.revision
          FROM fence.late_publication p
         WHERE p.published_at < v_before
         ORDER BY p.published_at
         LIMIT p_batch
           FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM fence.late_publication p
         USING old
         WHERE p.resource = old.resource AND p.generation = old.generation AND p.revision = old.revision
        RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
    RETURN NEXT;

    table_name := 'rejection';
    WITH old AS MATERIALIZED (
        SELECT r.resource, r.rejection_id
          FROM fence.rejection r
         WHERE r.first_at < v_before AND r.last_at < v_before
         ORDER BY r.first_at
         LIMIT p_batch
           FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM fence.rejection r
         USING old
         WHERE r.resource = old.resource AND r.rejection_id = old.rejection_id
        RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
    RETURN NEXT;

    table_name := 'intervention';
    WITH old AS MATERIALIZED (
        SELECT i.resource, i.generation, i.operation
          FROM fence.intervention i
         WHERE i.performed_at < v_before
         ORDER BY i.performed_at
         LIMIT p_batch
           FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM fence.intervention i
         USING old
         WHERE i.resource = old.resource AND i.generation = old.generation AND i.operation = old.operation
        RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
    RETURN NEXT;
END;
$$;
