-- Lets a lease last for ttl_ms from now, whether that is longer or shorter than before.
--
-- An expired lease that nobody took over is renewed too: the generation decides, not the clock.
--
-- Parameters  p_resource, p_owner, p_generation  the token
--             p_ttl_ms                           from now, ms
-- Result      one row: outcome; reason (NULL when renewed); lease_until; remaining_ms; when refused the
--             observation: observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    renewed · refused
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released
-- Locks       lease_term only, never lease, so that a fenced transaction does not stop its own renewal; none
--             when the row does not fit the token. Call it in a transaction of its own
-- Errors      FN001 invalid argument; 40001 retry the transaction
CREATE OR REPLACE FUNCTION fence.renew(
    p_resource text,
    p_owner text,
    p_generation bigint,
    p_ttl_ms bigint)
RETURNS TABLE (
    outcome text,
    reason text,
    lease_until timestamptz,
    remaining_ms bigint,
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
    v_term_generation bigint;
    v_term_owner text;
    v_term_ttl_ms bigint;
    v_term_until timestamptz;
    v_term_released_at timestamptz;
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, p_generation)
                 AND fence.assert_duration(p_ttl_ms, 'ttl_ms');

    -- Lock what would be accepted, and only that: a row that does not fit the token is not waited for and not
    -- locked. A take-over that we waited for makes the row unfit, too.
    SELECT t.generation INTO v_term_generation
      FROM fence.lease_term t
     WHERE t.resource = p_resource
       AND t.generation = p_generation AND t.owner = p_owner AND t.released_at IS NULL
       FOR NO KEY UPDATE;

    IF v_term_generation IS NULL THEN
        -- Read why: what refuses is final.
        SELECT t.generation, t.owner, t.ttl_ms, t.lease_until, t.released_at,
               t.xmax = pg_current_xact_id_if_assigned()::xid
          INTO v_term_generation, v_term_owner, v_term_ttl_ms, v_term_until, v_term_released_at, v_locked
          FROM fence.lease_term t
         WHERE t.resource = p_resource;
        reason := fence.refusal_reason(p_generation, p_owner, v_term_generation, v_term_owner, v_term_released_at);
        IF reason IS NULL THEN
            RAISE EXCEPTION 'the acquisition committed while this call ran: retry the transaction'
                USING ERRCODE = '40001';
        END IF;
        IF v_locked THEN
            -- Overtaken with the lock in hand: an idle transaction must not hold up the new holder's renewals.
            v_ignored := fence.bound_idle_time(v_term_ttl_ms);
        END IF;
    END IF;

    -- Clock: after the wait, or the new lease would be shorter than asked for, even over already.
    v_clock := clock_timestamp();

    IF reason IS NULL THEN
        outcome := 'renewed';
        lease_until := v_clock + p_ttl_ms * interval '1 millisecond';
        remaining_ms := p_ttl_ms;
        UPDATE fence.lease_term t
           SET ttl_ms = p_ttl_ms,
               lease_until = v_clock + p_ttl_ms * interval '1 millisecond',
               renewed_at = v_clock,
               renewals = t.renewals + 1
         WHERE t.resource = p_resource;
    ELSE
        outcome := 'refused';
        observed_generation := v_term_generation;
        observed_owner := v_term_owner;
        observed_lease_until := v_term_until;
        observed_at := v_clock;
        v_ignored := fence.record_rejection(
            p_resource, 'renew', reason, p_generation, p_owner,
            v_term_generation, v_term_owner, v_term_until, v_clock);
    END IF;
    RETURN NEXT;
END;
$$;
