-- Forgets a resource that is no longer used: its lease, its current publication and its operation keys.
--
-- Its last number goes into the global floor, so that a later resource of this name starts above it.
--
-- Parameters  p_resource, p_generation  what to forget; acts only while that is its generation
--             p_by                      who decides
--             p_note                    why; NULL: nothing to say
-- Result      one row: outcome; floor_after (the global floor, NULL unless removed)
-- Outcomes    removed (also when the same operator removed it before) · held (its lease is alive) ·
--             not_found (no such resource, or another generation by now)
-- Locks       lease, lease_term, publication, publication_key, floor; none when the plain read answers. Each
--             wait is bounded: 55P03 after 5 s, or the caller's own lock_timeout
-- Errors      FN001 invalid argument; 40001 retry the transaction; 55P03 a transaction holds the row: busy
CREATE OR REPLACE FUNCTION fence.remove(
    p_resource text,
    p_generation bigint,
    p_by text,
    p_note text DEFAULT NULL)
RETURNS TABLE (
    outcome text,
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
    v_row_generation bigint;
    v_row_owner text;
    v_row_floor bigint;
    v_term_until timestamptz;
    v_term_released_at timestamptz;
BEGIN
    v_ignored := fence.assert_name(p_resource, 'resource');
    v_ignored := fence.assert_name(p_by, 'by');
    IF p_generation IS NULL OR p_generation < 0 THEN
        RAISE EXCEPTION 'invalid argument generation: %, allowed are 0 and above', coalesce(p_generation::text, 'NULL')
            USING ERRCODE = 'FN001', COLUMN = 'generation';
    END IF;

    -- Read: clock first, then the rows, without a lock.
    v_clock := clock_timestamp();
    SELECT l.generation, t.lease_until, t.released_at
      INTO v_row_generation, v_term_until, v_term_released_at
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;

    IF v_row_generation = p_generation THEN
        IF v_term_released_at IS NULL AND v_term_until > v_clock THEN
            outcome := 'held';
        ELSE
            -- Lock identity, then time, and read again.
            v_lock_timeout := current_setting('lock_timeout');
            v_ignored := fence.bound_lock_wait(v_lock_timeout);
            SELECT l.generation, l.owner, l.floor
              INTO v_row_generation, v_row_owner, v_row_floor
              FROM fence.lease l
             WHERE l.resource = p_resource
               FOR UPDATE;
            SELECT t.lease_until, t.released_at
              INTO v_term_until, v_term_released_at
              FROM fence.lease_term t
             WHERE t.resource = p_resource
               FOR UPDATE;
            v_lock_timeout := set_config('lock_timeout', v_lock_timeout, true);

            -- Clock: after the wait. Decide.
            v_clock := clock_timestamp();
            IF v_row_generation = p_generation THEN
                IF v_term_released_at IS NULL AND v_term_until > v_clock THEN
                    outcome := 'held';
                ELSE
                    outcome := 'removed';
                END IF;
            END IF;
        END IF;
    END IF;

    IF outcome = 'removed' THEN
        -- Write; the floor last, since every other remove waits for it.
        -- A floor that a crash takes back is no floor.
        IF current_setting('synchronous_commit') = 'off' THEN
            v_lock_timeout := set_config('synchronous_commit', 'on', true);
        END IF;
        DELETE FROM fence.lease l WHERE l.resource = p_resource;
        DELETE FROM fence.lease_term t WHERE t.resource = p_resource;
        DELETE FROM fence.publication p WHERE p.resource = p_resource;
        DELETE FROM fence.publication_key k WHERE k.resource = p_resource;
        UPDATE fence.floor f
           SET at_least = greatest(f.at_least, v_row_generation, v_row_floor)
        RETURNING f.at_least INTO floor_after;
        INSERT INTO fence.intervention (
            resource, generation, operation, performed_by, note, performed_at, previous_owner, result)
        VALUES (p_resource, p_generation, 'remove', p_by, p_note, v_clock, v_row_owner, floor_after)
        -- A row that raise_floor made and nobody acquired has generation 0 in each of its lives.
        ON CONFLICT (resource, generation, operation) DO UPDATE
           SET performed_by = EXCLUDED.performed_by,
               note = EXCLUDED.note,
               performed_at = EXCLUDED.performed_at,
               result = EXCLUDED.result;
    ELSIF outcome IS NULL THEN
        SELECT i.result INTO floor_after
          FROM fence.intervention i
         WHERE i.resource = p_resource AND i.generation = p_generation
           AND i.operation = 'remove' AND i.performed_by = p_by;
        outcome := CASE WHEN floor_after IS NULL THEN 'not_found' ELSE 'removed' END;
    END IF;
    RETURN NEXT;
END;
$$;
