-- Makes later acquisitions start above a number: after a restore, or a move from another database.
--
-- It does not supersede a holder. When it returns, no acquisition that is still to commit gives out a lower
-- number: it waits for those under way.
--
-- Parameters  p_resource  the resource it is for; NULL: all of them
--             p_at_least  later generations are higher than this; 0 to 2^62
-- Result      one row: outcome; floor_before; floor_after
-- Outcomes    raised · unchanged (it was there already)
-- Locks       with a resource: lease, whose row it creates where there is none; without one: the table floor,
--             exclusively. Each wait is bounded: 55P03 after 5 s, or the caller's own lock_timeout
-- Errors      FN001 invalid argument; 40001 retry the transaction; 55P03 acquisitions are under way: busy
CREATE OR REPLACE FUNCTION fence.raise_floor(
    p_resource text,
    p_at_least bigint)
RETURNS TABLE (
    outcome text,
    floor_before bigint,
    floor_after bigint)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
DECLARE
    v_ignored boolean;
    v_lock_timeout text;
    v_clock timestamptz;
BEGIN
    IF p_resource IS NOT NULL THEN
        v_ignored := fence.assert_name(p_resource, 'resource');
    END IF;
    IF p_at_least IS NULL OR p_at_least < 0 OR p_at_least > 4611686018427387904 THEN
        RAISE EXCEPTION 'invalid argument at_least: %, allowed are 0 to 4611686018427387904', coalesce(p_at_least::text, 'NULL')
            USING ERRCODE = 'FN001', COLUMN = 'at_least';
    END IF;

    -- Lock.
    v_lock_timeout := current_setting('lock_timeout');
    v_ignored := fence.bound_lock_wait(v_lock_timeout);
    IF p_resource IS NOT NULL THEN
        v_clock := clock_timestamp();
        INSERT INTO fence.lease (resource, generation, acquired_at, released_at)
        VALUES (p_resource, 0, v_clock, v_clock)
        ON CONFLICT (resource) DO NOTHING;
        INSERT INTO fence.lease_term (resource, generation, ttl_ms, lease_until, released_at, renewed_at)
        VALUES (p_resource, 0, 1, v_clock, v_clock, v_clock)
        ON CONFLICT (resource) DO NOTHING;
        SELECT l.floor INTO floor_before
          FROM fence.lease l
         WHERE l.resource = p_resource
           FOR NO KEY UPDATE;
        IF floor_before IS NULL THEN
            RAISE EXCEPTION 'the resource was removed in the meantime: retry the transaction'
                USING ERRCODE = '40001';
        END IF;
    ELSE
        -- Every acquisition under way has read this table, or will: it is waited for, or waits.
        LOCK TABLE fence.floor IN ACCESS EXCLUSIVE MODE;
        SELECT f.at_least INTO floor_before FROM fence.floor f;
    END IF;
    v_lock_timeout := set_config('lock_timeout', v_lock_timeout, true);

    -- Decide and write.
    floor_after := greatest(floor_before, p_at_least);
    IF floor_after = floor_before THEN
        outcome := 'unchanged';
    ELSE
        outcome := 'raised';
        -- A floor that a crash takes back is no floor.
        IF current_setting('synchronous_commit') = 'off' THEN
            v_lock_timeout := set_config('synchronous_commit', 'on', true);
        END IF;
        IF p_resource IS NOT NULL THEN
            UPDATE fence.lease l SET floor = p_at_least WHERE l.resource = p_resource;
        ELSE
            UPDATE fence.floor f SET at_least = p_at_least;
        END IF;
    END IF;
    RETURN NEXT;
END;
$$;
