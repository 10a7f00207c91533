-- What a token that the fence accepts can still be refused for, by the clock; or NULL.
--
-- Internal: called by check and publish, executable by no role.
--
-- Parameters  @policy             until_superseded ignores lease_until
--             @lease_until        from the time row
--             @clock              read after the last wait
--             @source_as_of       how old the source data is; one in the future counts as age 0; NULL: no rule
--             @max_source_age_ms  ms; NULL: no rule
-- Returns     expired · stale_source, the first that holds; or NULL
-- Locks       none
-- Errors      none
CREATE FUNCTION fence.time_reason(
    @policy nvarchar(33),
    @lease_until datetime2(7),
    @clock datetime2(7),
    @source_as_of datetime2(7),
    @max_source_age_ms bigint)
RETURNS nvarchar(32)
AS
BEGIN
    RETURN CASE
        WHEN @policy = N'unexpired' AND @lease_until <= @clock THEN N'expired'
        WHEN @source_as_of < fence.plus_ms(@clock, -@max_source_age_ms) THEN N'stale_source'
    END;
END;
