-- The next fencing token of a row that the caller has locked.
--
-- Internal: called by acquire and seize, executable by no role.
--
-- Next = max(the row's generation, its floor, the global floor) + 1 + 2^32 for each epoch that the row has
-- missed. Nothing begins an epoch by itself on this engine: after a restore or a fail-over with loss an
-- operator runs raise_floor.
--
-- Parameters  @row_generation, @row_floor, @row_epoch  the lease row as locked
--             @floor, @epoch                           the global floor and the epoch
-- Returns     the next generation
-- Locks       none
-- Errors      none
CREATE FUNCTION fence.next_generation(
    @row_generation bigint,
    @row_floor bigint,
    @row_epoch bigint,
    @floor bigint,
    @epoch bigint)
RETURNS bigint
AS
BEGIN
    DECLARE @generation bigint;

    SET @generation = @row_generation;
    IF @generation < @row_floor
        SET @generation = @row_floor;
    IF @generation < @floor
        SET @generation = @floor;
    IF @epoch > @row_epoch
        SET @generation = @generation + (@epoch - @row_epoch) * 4294967296;
    RETURN @generation + 1;
END;
