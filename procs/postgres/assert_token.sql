-- Refuses a token (resource, owner, generation) that no acquisition can have given out.
--
-- Internal: called by the other routines, executable by no role. One expression, which the planner inlines:
-- names of printable ASCII without blanks, as nearly all are, cost no call.
--
-- Parameters  p_resource, p_owner  names
--             p_generation         fencing token, from 1
-- Returns     true
-- Rule        in examine_token
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.assert_token(p_resource text, p_owner text, p_generation bigint)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN p_generation >= 1
             AND octet_length(p_resource) <= 255
             AND octet_length(p_owner) <= 255
             AND (p_resource || ' ' || p_owner) COLLATE "C" ~ '^[!-~]+ [!-~]+$' THEN true
        ELSE fence.examine_token(p_resource, p_owner, p_generation)
    END
$$;
