-- Refuses a duration that is not 1 ms to 10 years.
--
-- Internal: called by assert_duration, executable by no role.
--
-- Parameters  p_value     milliseconds
--             p_argument  what the caller calls it; named in the error
-- Returns     true
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.examine_duration(p_value bigint, p_argument text)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'invalid argument %: it must not be NULL', p_argument
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;
    IF p_value < 1 OR p_value > 315576000000 THEN
        RAISE EXCEPTION 'invalid argument %: % ms, allowed are 1 to 315576000000 (10 years)', p_argument, p_value
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;

    RETURN true;
END;
$$;
