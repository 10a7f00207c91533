-- Refuses a name (resource, owner, key) that the engines could tell apart differently.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines:
-- printable ASCII without blanks, as nearly every name is, costs no call.
--
-- Parameters  p_value     the name
--             p_argument  what the caller calls it; named in the error
-- Returns     true
-- Rule        in examine_name
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.assert_name(p_value text, p_argument text)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN octet_length(p_value) <= 255
             AND p_value COLLATE "C" ~ '^[!-~]+$' THEN true
        ELSE fence.examine_name(p_value, p_argument)
    END
$$;
