-- The fence itself: why a token does not count against the lease row, or NULL when it does.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @generation, @owner                            the caller's token
--             @row_generation, @row_owner, @row_released_at  the row; all NULL when there is none. Generation 0
--                                                            is none, too: raise_floor made that row, and
--                                                            nobody has acquired it since
-- Returns     not_found · superseded · ahead_of_issuer · wrong_owner · released, the first that holds; or NULL
-- Locks       none
-- Errors      none
CREATE FUNCTION fence.refusal_reason(
    @generation bigint,
    @owner nvarchar(256),
    @row_generation bigint,
    @row_owner nvarchar(256),
    @row_released_at datetime2(7))
RETURNS nvarchar(32)
AS
BEGIN
    RETURN CASE
        WHEN COALESCE(@row_generation, 0) = 0 THEN N'not_found'
        WHEN @row_generation > @generation THEN N'superseded'
        WHEN @row_generation < @generation THEN N'ahead_of_issuer'
        WHEN @row_owner IS NULL OR @row_owner COLLATE Latin1_General_100_BIN2 <> @owner THEN N'wrong_owner'
        WHEN @row_released_at IS NOT NULL THEN N'released'
    END;
END;
