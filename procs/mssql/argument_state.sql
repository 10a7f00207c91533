-- The state of error 51001: which argument is invalid, for clients that do not read messages.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @argument  the argument's name
-- Returns     1 to 16, one for each name of an argument that can be invalid; numbers are only ever appended
-- Locks       none
-- Errors      none
CREATE FUNCTION fence.argument_state(
    @argument nvarchar(64))
RETURNS int
AS
BEGIN
    RETURN CASE @argument
        WHEN N'resource' THEN 1
        WHEN N'owner' THEN 2
        WHEN N'generation' THEN 3
        WHEN N'ttl_ms' THEN 4
        WHEN N'attributes' THEN 5
        WHEN N'payload' THEN 6
        WHEN N'content_type' THEN 7
        WHEN N'operation_key' THEN 8
        WHEN N'policy' THEN 9
        WHEN N'source_as_of' THEN 10
        WHEN N'max_source_age_ms' THEN 11
        WHEN N'then_release' THEN 12
        WHEN N'by' THEN 13
        WHEN N'at_least' THEN 14
        WHEN N'older_than_ms' THEN 15
        WHEN N'batch' THEN 16
        ELSE 0
    END;
END;
