-- Refuses a policy that is unknown.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @policy  until_superseded: the write counts until another acquisition took over
--                      unexpired: and only while the lease lasts
-- Locks       none
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.assert_policy
    @policy nvarchar(33)
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @message nvarchar(400);

-- Unit by unit; and blanks at the end, which no comparison sees, make it longer.
IF @policy IS NULL
   OR @policy COLLATE Latin1_General_100_BIN2 NOT IN (N'until_superseded', N'unexpired')
   OR LEN(@policy + N'.') - 1 NOT IN (16, 9)
BEGIN
    SET @message = N'invalid argument policy: ' + COALESCE(@policy, N'NULL')
        + N', allowed are until_superseded and unexpired';
    THROW 51001, @message, 9;
END;
