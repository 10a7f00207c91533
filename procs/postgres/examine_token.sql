-- Refuses a token (resource, owner, generation) that no acquisition can have given out.
--
-- Internal: called by assert_token, executable by no role.
--
-- Parameters  p_resource, p_owner  names
--             p_generation         fencing token, from 1
-- Returns     true
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.examine_token(p_resource text, p_owner text, p_generation bigint)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_valid boolean;
BEGIN
    v_valid := fence.examine_name(p_resource, 'resource');
    v_valid := fence.examine_name(p_owner, 'owner');
    IF p_generation IS NULL THEN
        RAISE EXCEPTION 'invalid argument generation: it must not be NULL'
            USING ERRCODE = 'FN001', COLUMN = 'generation';
    END IF;
    IF p_generation < 1 THEN
        RAISE EXCEPTION 'invalid argument generation: %, the first one given out is 1', p_generation
            USING ERRCODE = 'FN001', COLUMN = 'generation';
    END IF;

    RETURN true;
END;
$$;
