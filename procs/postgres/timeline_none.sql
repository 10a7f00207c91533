-- Which history this database writes: unknown, since this engine does not show its write-ahead log.
--
-- Internal: called by the other routines, executable by no role. Installed where the engine refuses the
-- WAL functions (Aurora); elsewhere timeline_wal.sql is. After a restore or a fail-over that lost commits
-- nothing raises generations by itself here: see raise_floor.
--
-- Returns     one row: source 'none'; system_identifier NULL; timeline NULL
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.timeline()
RETURNS TABLE (source text, system_identifier bigint, timeline bigint)
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
    source := 'none';
    RETURN NEXT;
END;
$$;
