-- Refuses a policy that is unknown, or that the caller's isolation level cannot keep.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines.
--
-- Parameters  p_policy  until_superseded: the write counts until another acquisition took over
--                       unexpired: and only while the lease lasts
-- Returns     true
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.assert_policy(p_policy text)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_policy = 'until_superseded' THEN true
        ELSE fence.examine_policy(p_policy)
    END
$$;
