-- How the next fencing token follows from what is known, and the epoch that is stored with it.
--
-- Internal: called by acquire and next_generation, executable by no role. One expression, which the planner
-- inlines.
--
-- Next = max(the row's generation, its floor, the global floor) + 1 + 2^32 for each epoch that the row has
-- missed.
--
-- Parameters  p_row_generation, p_row_floor, p_row_epoch  the lease row as locked
--             p_floor, p_epoch                            the global floor and the current epoch
-- Returns     generation, epoch
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.next_number(
    p_row_generation bigint, p_row_floor bigint, p_row_epoch bigint, p_floor bigint, p_epoch bigint)
RETURNS bigint[]
LANGUAGE sql
VOLATILE
AS $$
    SELECT ARRAY[
        greatest(p_row_generation, p_row_floor, p_floor) + 1 + (greatest(p_epoch, p_row_epoch) - p_row_epoch) * 4294967296,
        greatest(p_epoch, p_row_epoch)]
$$;
