-- Which history this database writes: the timeline of its write-ahead log.
--
-- Internal: called by the other routines, executable by no role. Installed where the engine shows its WAL
-- position; elsewhere timeline_none.sql is. One expression, which the planner inlines.
--
-- It is read out of the name of the current WAL file: that is right at once after a promotion, when
-- pg_control_checkpoint() still shows the old one.
--
-- Returns     the timeline; 0 on a standby, which writes none
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.timeline()
RETURNS bigint
LANGUAGE sql
VOLATILE
AS $$
    SELECT CASE
        WHEN pg_is_in_recovery() THEN 0
        ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
    END
$$;
