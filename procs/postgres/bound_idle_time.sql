-- Ends the caller's transaction when it idles for longer than its lease was taken for: it holds the lease
-- row, and a stalled client must not block a take-over for ever. A smaller bound of the caller's stays.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  p_ttl_ms  the lease's ttl, ms; NULL: the row is gone, so nothing is held
-- Returns     true
-- Locks       none
-- Errors      none; the idle session itself ends with 25P03
CREATE OR REPLACE FUNCTION fence.bound_idle_time(p_ttl_ms bigint)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_before text;
    v_ignored text;
BEGIN
    v_before := current_setting('idle_in_transaction_session_timeout');
    IF p_ttl_ms IS NOT NULL
       AND (v_before = '0' OR v_before::interval > p_ttl_ms * interval '1 millisecond') THEN
        -- The setting is an int of milliseconds: a longer ttl is as good as none.
        v_ignored := set_config('idle_in_transaction_session_timeout', least(p_ttl_ms, 2147483647)::text, true);
    END IF;

    RETURN true;
END;
$$;
