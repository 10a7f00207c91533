-- A time that is some milliseconds later, or earlier where they are negative.
--
-- DATEADD takes an int, in which milliseconds last for 24.8 days, and Babelfish computes them in floating point:
-- days, seconds and milliseconds are added apart.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @at  a time; NULL gives NULL
--             @ms  ms; NULL gives NULL
-- Returns     the other time
-- Locks       none
-- Errors      none
CREATE FUNCTION fence.plus_ms(
    @at datetime2(7),
    @ms bigint)
RETURNS datetime2(7)
AS
BEGIN
    RETURN DATEADD(millisecond, CAST(@ms % 1000 AS int),
           DATEADD(second, CAST(@ms / 1000 % 86400 AS int),
           DATEADD(day, CAST(@ms / 86400000 AS int), @at)));
END;
