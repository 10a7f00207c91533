-- Refuses a duration that is not 1 ms to 10 years.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @value     milliseconds
--             @argument  what the caller calls it; named in the error
-- Locks       none
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.assert_duration
    @value bigint,
    @argument nvarchar(64)
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @message nvarchar(400);
DECLARE @state int;

SET @state = fence.argument_state(@argument);
IF @value IS NULL
BEGIN
    SET @message = N'invalid argument ' + @argument + N': it must not be NULL';
    THROW 51001, @message, @state;
END;
IF @value < 1 OR @value > 315576000000
BEGIN
    SET @message = N'invalid argument ' + @argument + N': ' + CAST(@value AS nvarchar(20))
        + N' ms, allowed are 1 to 315576000000 (10 years)';
    THROW 51001, @message, @state;
END;
