-- Fences the caller's own writes: holds the lease row until the caller's transaction ends, if the caller's
-- acquisition still counts.
--
-- Call it first in a transaction, write, commit: no other acquisition can commit in between. A lock taken
-- after a savepoint is given back by ROLLBACK TO it: check before the savepoint, or again after the rollback.
-- Outside a transaction the answer is advice, since the row is free again when it arrives.
--
-- Parameters  p_resource, p_owner, p_generation  the token
--             p_policy                           until_superseded · unexpired
-- Result      one row: outcome; reason (NULL when ok); late_ms (how long the lease has been over, NULL: it is
--             not); when rejected the observation: observed_generation, observed_owner, observed_lease_until,
--             observed_at
-- Outcomes    ok · rejected
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only)
-- Locks       lease; none when the plain read rejects
-- Errors      FN001 invalid argument; 40001 retry the transaction
CREATE OR REPLACE FUNCTION fence.check(
    p_resource text,
    p_owner text,
    p_generation bigint,
    p_policy text DEFAULT 'until_superseded')
RETURNS TABLE (
    outcome text,
    reason text,
    late_ms bigint,
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
    v_term_until timestamptz;
    v_term_ttl_ms bigint;
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, p_generation)
                 AND fence.assert_policy(p_policy);

    -- Read: clock first, then the rows, without a lock.
    v_clock := clock_timestamp();
    SELECT l.generation, l.owner, l.released_at, t.lease_until
      INTO v_row_generation, v_row_owner, v_row_released_at, v_term_until
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;
    reason := coalesce(
        fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at),
        fence.time_reason(p_policy, v_term_until, v_clock, NULL, NULL));

    IF reason IS NULL THEN
        -- Lock the identity, so that no take-over commits before the caller does, and read again.
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

        -- Clock: after the wait, and before the time row, whose renewals do not wait for us.
        v_clock := clock_timestamp();
        SELECT t.lease_until, t.ttl_ms
          INTO v_term_until, v_term_ttl_ms
          FROM fence.lease_term t
         WHERE t.resource = p_resource;

        -- Decide.
        reason := coalesce(
            fence.refusal_reason(p_generation, p_owner, v_row_generation, v_row_owner, v_row_released_at),
            fence.time_reason(p_policy, v_term_until, v_clock, NULL, NULL));
        IF v_locked THEN
            v_ignored := fence.bound_idle_time(v_term_ttl_ms);
        END IF;
    END IF;

    IF reason IS NULL THEN
        outcome := 'ok';
        IF v_term_until < v_clock THEN
            late_ms := ceil(extract(epoch FROM v_clock - v_term_until) * 1000);
        END IF;
    ELSE
        outcome := 'rejected';
        observed_generation := v_row_generation;
        observed_owner := v_row_owner;
        observed_lease_until := v_term_until;
        observed_at := v_clock;
        v_ignored := fence.record_rejection(
            p_resource, 'check', reason, p_generation, p_owner,
            v_row_generation, v_row_owner, v_term_until, v_clock);
    END IF;
    RETURN NEXT;
END;
$$;
