-- Fences the caller's own writes like check, and raises an error where check would answer rejected.
--
-- The error aborts the caller's transaction, and with it the record of the refusal: count it in the client.
--
-- Parameters  p_resource, p_owner, p_generation  the token
--             p_policy                           until_superseded · unexpired
-- Result      one row as check gives it when ok: outcome; reason; late_ms; observed_generation,
--             observed_owner, observed_lease_until, observed_at
-- Outcomes    ok
-- Locks       lease
-- Errors      FN100 refused: the reason in the message, reason and observation as a JSON object in the
--             detail; FN001 invalid argument; 40001 retry the transaction
CREATE OR REPLACE FUNCTION fence.require(
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
BEGIN
    SELECT c.outcome, c.reason, c.late_ms,
           c.observed_generation, c.observed_owner, c.observed_lease_until, c.observed_at
      INTO outcome, reason, late_ms,
           observed_generation, observed_owner, observed_lease_until, observed_at
      FROM fence.check(p_resource, p_owner, p_generation, p_policy) c;

    IF outcome <> 'ok' THEN
        RAISE EXCEPTION 'refused by the fence: % (resource %, owner %, generation %)', reason, p_resource, p_owner, p_generation
            USING ERRCODE = 'FN100',
                  DETAIL = json_build_object(
                      'reason', reason,
                      'observed_generation', observed_generation,
                      'observed_owner', observed_owner,
                      'observed_lease_until', observed_lease_until,
                      'observed_at', observed_at)::text;
    END IF;
    RETURN NEXT;
END;
$$;
