-- The fence itself: why a token does not count against the lease row, or NULL when it does.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_generation, p_owner          the caller's token
--             p_row_generation, p_row_owner,
--             p_row_released_at              the row; all NULL when there is none. Generation 0 is none, too:
--                                            raise_floor made that row, and nobody has acquired it since
-- Returns     not_found · superseded · ahead_of_issuer · wrong_owner · released, the first that holds; or NULL
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.refusal_reason(
    p_generation bigint, p_owner text,
    p_row_generation bigint, p_row_owner text, p_row_released_at timestamptz)
RETURNS text
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN coalesce(p_row_generation, 0) = 0 THEN 'not_found'
        WHEN p_row_generation > p_generation THEN 'superseded'
        WHEN p_row_generation < p_generation THEN 'ahead_of_issuer'
        WHEN p_row_owner IS NULL OR p_row_owner <> p_owner THEN 'wrong_owner'
        WHEN p_row_released_at IS NOT NULL THEN 'released'
    END
$$;
