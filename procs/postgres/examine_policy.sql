-- Refuses a policy that is unknown, or that the caller's isolation level cannot keep.
--
-- Internal: called by assert_policy, executable by no role.
--
-- Parameters  p_policy  until_superseded: the write counts until another acquisition took over
--                       unexpired: and only while the lease lasts
-- Returns     true
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.examine_policy(p_policy text)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
    IF p_policy IS NULL OR p_policy NOT IN ('until_superseded', 'unexpired') THEN
        RAISE EXCEPTION 'invalid argument policy: %, allowed are until_superseded and unexpired', coalesce(p_policy, 'NULL')
            USING ERRCODE = 'FN001', COLUMN = 'policy';
    END IF;
    -- A snapshot shows lease_until as it was, not the renewal since: the answer would be wrong, not late.
    IF p_policy = 'unexpired'
       AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'invalid argument policy: unexpired needs the isolation level READ COMMITTED'
            USING ERRCODE = 'FN001', COLUMN = 'policy';
    END IF;

    RETURN true;
END;
$$;
