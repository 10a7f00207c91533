-- Refuses a name (resource, owner, key) that the engines could tell apart differently.
--
-- Internal: called by assert_name and examine_token, executable by no role.
--
-- Parameters  p_value     the name
--             p_argument  what the caller calls it; named in the error
-- Returns     true
-- Rule        1 to 255 UTF-16 code units (SQL Server counts so); no control characters; no white space at
--             either end (SQL Server ignores it there)
-- Locks       none
-- Errors      FN001 invalid argument
CREATE OR REPLACE FUNCTION fence.examine_name(p_value text, p_argument text)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_units bigint;
BEGIN
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'invalid argument %: it must not be NULL', p_argument
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;

    -- A character above U+FFFF is two units in UTF-16, and the only kind with four bytes in UTF-8.
    v_units := char_length(p_value);
    IF octet_length(p_value) <> v_units THEN
        v_units := v_units + char_length(regexp_replace(p_value COLLATE "C", '[^\U00010000-\U0010FFFF]', '', 'g'));
    END IF;
    IF v_units < 1 OR v_units > 255 THEN
        RAISE EXCEPTION 'invalid argument %: it has % UTF-16 code units, allowed are 1 to 255', p_argument, v_units
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;

    IF p_value COLLATE "C" ~ '[\u0001-\u001F\u007F-\u009F]' THEN
        RAISE EXCEPTION 'invalid argument %: it contains a control character', p_argument
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;
    IF p_value COLLATE "C" ~ '^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]'
       OR p_value COLLATE "C" ~ '[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$' THEN
        RAISE EXCEPTION 'invalid argument %: it begins or ends with white space', p_argument
            USING ERRCODE = 'FN001', COLUMN = p_argument;
    END IF;

    RETURN true;
END;
$$;
