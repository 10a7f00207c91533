-- Ends an acquisition by an operator's decision: gives out a new generation that has no owner.
--
-- The holder's writes are refused as superseded from then on, and anybody may acquire. It acts only while
-- the resource still has the generation that the operator saw, and waits for an open fenced transaction.
--
-- Parameters  @resource, @generation  what to end
--             @by                     who decides
--             @note                   why; NULL: nothing to say
-- Result      one row: outcome; generation (the new one, NULL when refused); previous_owner; when refused the
--             observation: observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    seized · replayed (the same operator seized it before) · refused (another generation, or none)
-- Locks       lease, lease_term, floor (shared); none when the plain read
--             refuses or replays. The wait is bounded: 1222 after 5 s, or the caller's own LOCK_TIMEOUT
-- Errors      51001 invalid argument; 1222 a transaction holds the row: busy
CREATE PROCEDURE fence.seize
    @resource nvarchar(256),
    @generation bigint,
    @by nvarchar(256),
    @note nvarchar(max) = NULL
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @found int;
DECLARE @outcome nvarchar(16);
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_floor bigint;
DECLARE @row_epoch bigint;
DECLARE @term_until datetime2(7);
DECLARE @floor bigint;
DECLARE @next_generation bigint;
DECLARE @next_epoch bigint;
DECLARE @previous_owner nvarchar(255);

EXEC fence.assert_name @by, N'by';
EXEC fence.assert_token @resource, @by, @generation;

-- Read: a generation that is gone does not come back.
SET @clock = SYSUTCDATETIME();
SELECT @row_generation = l.generation, @row_owner = l.owner
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;

SET @own_transaction = 0;
IF @row_generation = @generation
BEGIN
    -- Lock identity, then time, and read again.
    IF @@LOCK_TIMEOUT < 0 OR @@LOCK_TIMEOUT > 5000
        SET LOCK_TIMEOUT 5000;
    IF @@TRANCOUNT = 0
    BEGIN
        SET @own_transaction = 1;
        BEGIN TRANSACTION;
    END;
    UPDATE fence.lease WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    SET @found = @@ROWCOUNT;
    -- No row was locked: it is gone, and a new one of its name is not the one that this call is about.
    SET @row_generation = NULL;
    SET @row_owner = NULL;
    IF @found = 1
        SELECT @row_generation = l.generation, @row_owner = l.owner, @row_floor = l.floor, @row_epoch = l.epoch
          FROM fence.lease l WITH (READCOMMITTEDLOCK)
         WHERE l.resource = @resource;
    UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    IF @row_generation = @generation
    BEGIN
        SET @outcome = N'seized';
        -- The floor is read after the lease row is locked, and held until the number is committed: raise_floor
        -- waits for both, so its floor is not missed.
        SELECT @floor = f.at_least FROM fence.floor f WITH (REPEATABLEREAD, ROWLOCK);
        SELECT @next_epoch = e.epoch FROM fence.epoch e WITH (READCOMMITTEDLOCK);
        SET @next_generation = fence.next_generation(@row_generation, @row_floor, @row_epoch, @floor, @next_epoch);
        IF @next_epoch < @row_epoch
            SET @next_epoch = @row_epoch;
    END;
    SET @clock = SYSUTCDATETIME();
END;

IF @outcome = N'seized'
BEGIN
    -- Write.
    SET @previous_owner = @row_owner;
    UPDATE fence.lease
       SET generation = @next_generation,
           owner = NULL,
           acquired_at = @clock,
           released_at = @clock,
           request_id = NULL,
           epoch = @next_epoch
     WHERE resource = @resource;
    UPDATE fence.lease_term
       SET generation = @next_generation,
           owner = NULL,
           attributes = NULL,
           lease_until = @clock,
           released_at = @clock,
           renewed_at = @clock,
           renewals = 0
     WHERE resource = @resource;
    INSERT INTO fence.intervention (
        resource, generation, operation, performed_by, note, performed_at, previous_owner, result)
    VALUES (@resource, @generation, N'seize', @by, @note, @clock, @row_owner, @next_generation);
END;
ELSE
BEGIN
    SELECT @next_generation = i.result, @previous_owner = i.previous_owner
      FROM fence.intervention i WITH (READCOMMITTEDLOCK)
     WHERE i.resource = @resource AND i.generation = @generation
       AND i.operation = N'seize' AND i.performed_by = @by;
    IF @next_generation IS NOT NULL
        SET @outcome = N'replayed';
    ELSE
    BEGIN
        SET @outcome = N'refused';
        SELECT @term_until = t.lease_until
          FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
         WHERE t.resource = @resource;
    END;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT @outcome AS outcome,
       @next_generation AS generation,
       @previous_owner AS previous_owner,
       CASE WHEN @outcome = N'refused' THEN @row_generation END AS observed_generation,
       CASE WHEN @outcome = N'refused' THEN @row_owner END AS observed_owner,
       CASE WHEN @outcome = N'refused' THEN @term_until END AS observed_lease_until,
       CASE WHEN @outcome = N'refused' THEN @clock END AS observed_at;
