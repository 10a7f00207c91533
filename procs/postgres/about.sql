-- Says what is deployed here, so that a caller can tell whether it knows this contract.
--
-- Result      one row: contract_version; engine; engine_version; schema_version (the newest migration);
--             timeline_source (wal: generations jump after a promotion or a restore; none: they do not)
-- Locks       none; read only
-- Errors      none
CREATE OR REPLACE FUNCTION fence.about()
RETURNS TABLE (
    contract_version integer,
    engine text,
    engine_version text,
    schema_version bigint,
    timeline_source text)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, fence, pg_temp
AS $$
BEGIN
    contract_version := 1;
    engine := 'postgres';
    engine_version := current_setting('server_version');
    schema_version := (SELECT max(v.version_id) FROM fence.goose_db_version v WHERE v.is_applied);
    timeline_source := CASE WHEN fence.timeline() IS NULL THEN 'none' ELSE 'wal' END;
    RETURN NEXT;
END;
$$;
