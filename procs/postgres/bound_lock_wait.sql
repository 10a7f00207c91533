-- Bounds how long the rest of the call waits for a row lock, so that a stalled transaction elsewhere makes
-- a take-over answer "busy" instead of hanging. A smaller bound of the caller's stays.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_before  the caller's lock_timeout, which is to be put back when the row is locked
-- Returns     true
-- Locks       none
-- Errors      none; the wait itself ends in 55P03
CREATE OR REPLACE FUNCTION fence.bound_lock_wait(p_before text)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_before = '0' OR p_before::interval > interval '5 seconds'
        THEN set_config('lock_timeout', '5s', true) IS NOT NULL
        ELSE true
    END
$$;
