-- The next fencing token of a row that the caller has locked.
--
-- Internal: called by acquire and seize, executable by no role.
--
-- Next = max(the row's generation, its floor, the global floor) + 1 + 2^32 for each epoch that the row has
-- missed. An epoch begins when the first grant finds this database on another timeline, or under another
-- system identifier, than the last one: after a promotion or a restore, which may have lost the last numbers.
--
-- Parameters  p_row_generation, p_row_floor, p_row_epoch  the lease row as locked
-- Returns     an array of two: the generation; the epoch, to be stored with it. (A result row would have to be
--             read by a statement of its own, which costs as much as the rest.)
-- Locks       epoch (only when it advances), floor (shared, above READ COMMITTED only)
-- Errors      40001 the snapshot is older than the floor or the epoch: retry the transaction
CREATE OR REPLACE FUNCTION fence.next_generation(p_row_generation bigint, p_row_floor bigint, p_row_epoch bigint)
RETURNS bigint[]
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
    v_system_identifier bigint;
    v_timeline bigint;
    v_floor bigint;
    v_epoch bigint;
    v_ignored text;
BEGIN
    -- A number that a crash takes back would be given out again.
    IF current_setting('synchronous_commit') = 'off' THEN
        v_ignored := set_config('synchronous_commit', 'on', true);
    END IF;

    -- Read after the lease row is locked: raise_floor waits for that lock, so its floor is not missed. A
    -- snapshot taken earlier could miss it; there the shared lock turns "changed since" into 40001.
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT f.at_least INTO v_floor FROM fence.floor f;
    ELSE
        SELECT f.at_least INTO v_floor FROM fence.floor f FOR SHARE;
    END IF;

    v_timeline := fence.timeline();
    IF v_timeline IS NOT NULL THEN
        -- Of many grants that find another history one advances the epoch: the others wait for it here, and
        -- the condition, judged again after the wait, no longer holds for them.
        v_system_identifier := (pg_control_system()).system_identifier;
        UPDATE fence.epoch e
           SET epoch = CASE WHEN e.timeline IS NULL THEN e.epoch
                            ELSE e.epoch + greatest(1, v_timeline - e.timeline) END,
               system_identifier = v_system_identifier,
               timeline = v_timeline
         WHERE e.timeline IS DISTINCT FROM v_timeline
            OR e.system_identifier IS DISTINCT FROM v_system_identifier;
    END IF;
    SELECT e.epoch INTO v_epoch FROM fence.epoch e;

    RETURN fence.next_number(p_row_generation, p_row_floor, p_row_epoch, v_floor, v_epoch);
END;
$$;
