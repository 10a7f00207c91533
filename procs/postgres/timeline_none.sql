-- Which history this database writes: unknown, since this engine does not show its write-ahead log.
--
-- Internal: called by the other routines, executable by no role. Installed where the engine refuses the
-- WAL functions (Aurora); elsewhere timeline_wal.sql is. After a restore or a fail-over that lost commits
-- nothing raises generations by itself here: see raise_floor.
--
-- Returns     NULL
-- Locks       none
-- Errors      none
CREATE OR REPLACE FUNCTION fence.timeline()
RETURNS bigint
LANGUAGE sql
VOLATILE
AS $$
    SELECT NULL::bigint
$$;
