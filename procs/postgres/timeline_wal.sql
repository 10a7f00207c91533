-- Which history this database writes: the cluster's identifier and the timeline of its write-ahead log.
--
-- Internal: called by the other routines, executable by no role. Installed where the engine shows its WAL
-- position; elsewhere timeline_none.sql is.
--
-- The timeline is read out of the name of the current WAL file: that is right at once after a promotion,
-- when pg_control_checkpoint() still shows the old one.
--
-- Returns     one row: source 'wal'; system_identifier; timeline. The last two are NULL on a standby
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.timeline()
RETURNS TABLE (source text, system_identifier bigint, timeline bigint)
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
    source := 'wal';
    IF NOT pg_is_in_recovery() THEN
        system_identifier := (SELECT c.system_identifier FROM pg_control_system() c);
        timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    END IF;
    RETURN NEXT;
END;
$$;
