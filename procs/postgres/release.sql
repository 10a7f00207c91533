-- Gives a lease back, so that another owner need not wait for it to run out.
--
-- The owner stays in the row, and released_at says that it is over.
--
-- Parameters  p_resource, p_owner, p_generation  the token
-- Result      one row: outcome; reason (NULL unless refused); when refused the observation:
--             observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    released · replayed (it was released before) · refused
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner
-- Locks       lease, lease_term; none when the plain read refuses or replays
-- Errors      FN001 invalid argument; 40001 retry the transaction
CREATE OR REPLACE FUNCTION fence.release(
    p_resource text,
    p_owner text,
    p_generation bigint)
RETURNS TABLE (
    outcome text,
    reason text,
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
    v_locked boolean;
    v_clock timestamptz;
    v_row_generation bigint;
    v_row_owner text;
    v_row_released_at timestamptz;
    v_term_ttl_ms bigint;
    v_term_until timestamptz;
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, p_generation);

    -- Read: what refuses or replays here is final, and the caller holds no lock.
    SELECT l.generation, l.owner, l.released_at, t.lease_until, t.ttl_ms
      INTO v_row_generation, v_row_owner, v_row_released_at, v_term_until, v_term_ttl_ms
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;
    reason := fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at);

    IF reason IS NULL THEN
        -- Lock identity, then time, and read again.
        SELECT l.generation, l.owner, l.released_at
          INTO v_row_generation, v_row_owner, v_row_released_at
          FROM fence.lease l
         WHERE l.resource = p_resource
           FOR NO KEY UPDATE;
        v_locked := v_row_generation IS NOT NULL;
        IF NOT v_locked THEN
            -- Removed while we waited. The name may have another row by now.
            SELECT l.generation, l.owner, l.released_at
              INTO v_row_generation, v_row_owner, v_row_released_at
              FROM fence.lease l
             WHERE l.resource = p_resource;
        END IF;
        reason := fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at);
        IF reason IS NULL THEN
            SELECT t.lease_until INTO v_term_until
              FROM fence.lease_term t
             WHERE t.resource = p_resource
               FOR NO KEY UPDATE;
        ELSE
            SELECT t.lease_until, t.ttl_ms INTO v_term_until, v_term_ttl_ms
              FROM fence.lease_term t
             WHERE t.resource = p_resource;
            IF v_locked THEN
                -- Refused with the lock in hand: an idle transaction must not hold up the new holder.
                v_ignored := fence.bound_idle_time(v_term_ttl_ms);
            END IF;
        END IF;
    END IF;

    v_clock := clock_timestamp();

    IF reason IS NULL THEN
        outcome := 'released';
        UPDATE fence.lease l SET released_at = v_clock WHERE l.resource = p_resource;
        UPDATE fence.lease_term t SET released_at = v_clock WHERE t.resource = p_resource;
    ELSIF reason = 'released' THEN
        outcome := 'replayed';
        reason := NULL;
    ELSE
        outcome := 'refused';
        observed_generation := v_row_generation;
        observed_owner := v_row_owner;
        observed_lease_until := v_term_until;
        observed_at := v_clock;
        v_ignored := fence.record_rejection(
            p_resource, 'release', reason, p_generation, p_owner,
            v_row_generation, v_row_owner, v_term_until, v_clock);
    END IF;
    RETURN NEXT;
END;
$$;
