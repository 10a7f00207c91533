-- Ends the caller's transaction when it idles for longer than its lease was taken for: it holds the lease
-- row, and a stalled client must not block a take-over for ever. A smaller bound of the caller's stays.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_ttl_ms  the lease's ttl, ms; NULL: the row is gone, so nothing is held
-- Returns     true
-- Locks       none
-- Errors      none; the idle session itself ends with 25P03
CREATE OR REPLACE FUNCTION fence.bound_idle_time(p_ttl_ms bigint)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_ttl_ms IS NOT NULL
             AND (current_setting('idle_in_transaction_session_timeout') = '0'
                  OR current_setting('idle_in_transaction_session_timeout')::interval > p_ttl_ms * interval '1 millisecond')
        -- The setting is an int of milliseconds: a longer ttl is as good as none.
        THEN set_config('idle_in_transaction_session_timeout', least(p_ttl_ms, 2147483647)::text, true) IS NOT NULL
        ELSE true
    END
$$;
