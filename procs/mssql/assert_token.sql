-- Refuses a token (resource, owner, generation) that no acquisition can have given out.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @resource, @owner  names
--             @generation        fencing token, from 1
-- Locks       none
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.assert_token
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @message nvarchar(400);

EXEC fence.assert_name @resource, N'resource';
EXEC fence.assert_name @owner, N'owner';
IF @generation IS NULL
    THROW 51001, N'invalid argument generation: it must not be NULL', 3;
IF @generation < 1
BEGIN
    SET @message = N'invalid argument generation: ' + CAST(@generation AS nvarchar(20))
        + N', the first one given out is 1';
    THROW 51001, @message, 3;
END;
