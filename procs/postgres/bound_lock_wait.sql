-- Bounds how long the rest of the call waits for a row lock, so that a stalled transaction elsewhere makes
-- a take-over answer "busy" instead of hanging. A smaller bound of the caller's stays.
--
-- Internal: called by the other routines, executable by no role.
--
-- Returns     the caller's lock_timeout, to be put back when the row is locked
-- Locks       none
-- Errors      none; the wait itself ends in 55P03
CREATE OR REPLACE FUNCTION fence.bound_lock_wait()
RETURNS text
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_before text;
    v_ignored text;
BEGIN
    v_before := current_setting('lock_timeout');
    IF v_before = '0' OR v_before::interval > interval '5 seconds' THEN
        v_ignored := set_config('lock_timeout', '5s', true);
    END IF;

    RETURN v_before;
END;
$$;
