-- Explains why the caller's own conditional UPDATE changed nothing: the read that follows it.
--
-- It comes later than the UPDATE, and another acquisition may have landed in between. So it names a cause
-- only where the row proves it, and says unknown otherwise: docs/semantics.md#reasons has the proofs.
--
-- Parameters  p_resource, p_owner, p_generation  the token
--             p_attempted_at  this database's clock, read before the UPDATE; NULL or a time still to come
--                             proves nothing, and gives unknown wherever time is needed
--             p_policy        what the UPDATE demanded: until_superseded · unexpired
-- Result      one row: reason; certain (false when unknown); observed_generation, observed_owner,
--             observed_lease_until, observed_at
-- Reasons     superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only) · unknown
-- Locks       none; read only
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.diagnose(
    p_resource text,
    p_owner text,
    p_generation bigint,
    p_attempted_at timestamptz DEFAULT NULL,
    p_policy text DEFAULT 'until_superseded')
RETURNS TABLE (
    reason text,
    certain boolean,
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
    v_attempted_at timestamptz;
    v_acquired_at timestamptz;
    v_released_at timestamptz;
    v_renewed_at timestamptz;
BEGIN
    v_ignored := fence.assert_token(p_resource, p_owner, p_generation)
                 AND fence.assert_policy(p_policy);

    -- Clock first, then both rows in one statement: they belong together.
    observed_at := clock_timestamp();
    SELECT l.generation, l.owner, l.acquired_at, l.released_at, t.lease_until, t.renewed_at
      INTO observed_generation, observed_owner, v_acquired_at, v_released_at, observed_lease_until, v_renewed_at
      FROM fence.lease l
      JOIN fence.lease_term t ON t.resource = l.resource
     WHERE l.resource = p_resource AND t.resource = p_resource;

    IF p_attempted_at <= observed_at THEN
        v_attempted_at := p_attempted_at;
    END IF;

    reason := fence.refusal_reason(p_generation, p_owner, observed_generation, observed_owner, v_released_at);
    IF reason IS NULL THEN
        -- The token is good, so until_superseded has no reason to refuse, and unexpired has only one: that
        -- the lease was over. Alive again, it was renewed since; alive all along, nothing explains it.
        reason := CASE WHEN p_policy = 'unexpired'
                        AND (observed_lease_until <= observed_at OR v_renewed_at > v_attempted_at) THEN 'expired'
                       ELSE 'unknown' END;
    ELSIF reason = 'not_found' THEN
        -- It may have been removed since.
        reason := 'unknown';
    ELSIF reason = 'superseded' AND (v_attempted_at IS NULL OR v_acquired_at > v_attempted_at) THEN
        -- That acquisition may have come after the UPDATE.
        reason := 'unknown';
    ELSIF reason = 'released' AND p_policy = 'unexpired'
          AND (v_attempted_at IS NULL OR v_released_at > v_attempted_at) THEN
        -- Expired first and released after the UPDATE, or released before it: both are possible.
        reason := 'unknown';
    ELSIF reason = 'ahead_of_issuer'
          AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- The snapshot may be older than the token.
        reason := 'unknown';
    END IF;
    certain := reason <> 'unknown';
    RETURN NEXT;
END;
$$;
