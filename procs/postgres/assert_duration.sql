-- Refuses a duration that is not 1 ms to 10 years.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_value     milliseconds
--             p_argument  what the caller calls it; named in the error
-- Returns     true
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.assert_duration(p_value bigint, p_argument text)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_value BETWEEN 1 AND 315576000000 THEN true
        ELSE fence.examine_duration(p_value, p_argument)
    END
$$;
