-- Ends an acquisition by an operator's decision: gives out a new generation that has no owner.
--
-- The holder's writes are refused as superseded from then on, and anybody may acquire. It acts only while
-- the resource still has the generation that the operator saw, and waits for an open fenced transaction.
--
-- Parameters  p_resource, p_generation  what to end
--             p_by                      who decides
--             p_note                    why; NULL: nothing to say
-- Result      one row: outcome; generation (the new one, NULL when refused); previous_owner; when refused the
--             observation: observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    seized · replayed (the same operator seized it before) · refused (another generation, or none)
-- Locks       lease, lease_term, then epoch and floor as next_generation says; none when the plain read
--             refuses or replays. Each wait is bounded: 55P03 after 5 s, or the caller's own lock_timeout
-- Errors      FN001 invalid argument; 40001 retry the transaction; 55P03 a transaction holds the row: busy
CREATE OR REPLACE FUNCTION fence.seize(
    p_resource text,
    p_generation bigint,
    p_by text,
    p_note text DEFAULT NULL)
RETURNS TABLE (
    outcome text,
    generation bigint,
    previous_owner text,
    observed_generation bigint,
    observed_owner text,
    observed_lease_until timestamptz,
    observed_at timestamptz)
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
    v_row_epoch bigint;
    v_term_until timestamptz;
    v_next bigint[]; -- generation, epoch
BEGIN
    v_ignored := fence.assert_name(p_by, 'by');
    v_ignored := fence.assert_token(p_resource, p_by, p_generation);

    -- Read: a generation that is gone does not come back.
    v_clock := clock_timestamp();
    SELECT l.generation, l.owner, t.lease_until
      INTO v_row_generation, v_row_owner, v_term_until
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;

    IF v_row_generation = p_generation THEN
        -- Lock identity, then time, and read again.
        v_lock_timeout := current_setting('lock_timeout');
        v_ignored := fence.bound_lock_wait(v_lock_timeout);
        SELECT l.generation, l.owner, l.floor, l.epoch
          INTO v_row_generation, v_row_owner, v_row_floor, v_row_epoch
          FROM fence.lease l
         WHERE l.resource = p_resource
           FOR NO KEY UPDATE;
        SELECT t.lease_until INTO v_term_until
          FROM fence.lease_term t
         WHERE t.resource = p_resource
           FOR NO KEY UPDATE;
        IF v_row_generation = p_generation THEN
            outcome := 'seized';
            v_next := fence.next_generation(v_row_generation, v_row_floor, v_row_epoch);
        END IF;
        v_lock_timeout := set_config('lock_timeout', v_lock_timeout, true);
        v_clock := clock_timestamp();
    END IF;

    IF outcome = 'seized' THEN
        -- Write.
        generation := v_next[1];
        previous_owner := v_row_owner;
        UPDATE fence.lease l
           SET generation = v_next[1],
               owner = NULL,
               acquired_at = v_clock,
               released_at = v_clock,
               request_id = NULL,
               epoch = v_next[2]
         WHERE l.resource = p_resource;
        UPDATE fence.lease_term t
           SET generation = v_next[1],
               owner = NULL,
               attributes = NULL,
               lease_until = v_clock,
               released_at = v_clock,
               renewed_at = v_clock,
               renewals = 0
         WHERE t.resource = p_resource;
        INSERT INTO fence.intervention (
            resource, generation, operation, performed_by, note, performed_at, previous_owner, result)
        VALUES (p_resource, p_generation, 'seize', p_by, p_note, v_clock, v_row_owner, v_next[1]);
    ELSE
        SELECT i.result, i.previous_owner
          INTO generation, previous_owner
          FROM fence.intervention i
         WHERE i.resource = p_resource AND i.generation = p_generation
           AND i.operation = 'seize' AND i.performed_by = p_by;
        IF generation IS NOT NULL THEN
            outcome := 'replayed';
        ELSE
            outcome := 'refused';
            observed_generation := v_row_generation;
            observed_owner := v_row_owner;
            observed_lease_until := v_term_until;
            observed_at := v_clock;
        END IF;
    END IF;
    RETURN NEXT;
END;
$$;
