-- Forgets a resource that is no longer used: its lease, its current publication and its operation keys.
--
-- Its last number goes into the global floor, so that a later resource of this name starts above it.
--
-- Parameters  @resource, @generation  what to forget; acts only while that is its generation
--             @by                     who decides
--             @note                   why; NULL: nothing to say
-- Result      one row: outcome; floor_after (the global floor, NULL unless removed)
-- Outcomes    removed (also when the same operator removed it before) · held (its lease is alive) ·
--             not_found (no such resource, or another generation by now)
-- Locks       lease, lease_term, publication, publication_key, floor; none when the plain read answers. The
--             wait is bounded: 1222 after 5 s, or the caller's own LOCK_TIMEOUT
-- Errors      51001 invalid argument; 1222 a transaction holds the row: busy
CREATE PROCEDURE fence.remove
    @resource nvarchar(256),
    @generation bigint,
    @by nvarchar(256),
    @note nvarchar(max) = NULL
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @outcome nvarchar(16);
DECLARE @message nvarchar(400);
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_floor bigint;
DECLARE @term_until datetime2(7);
DECLARE @term_released_at datetime2(7);
DECLARE @floor_after bigint;
DECLARE @found int;

EXEC fence.assert_name @resource, N'resource';
EXEC fence.assert_name @by, N'by';
IF @generation IS NULL OR @generation < 0
BEGIN
    SET @message = N'invalid argument generation: ' + COALESCE(CAST(@generation AS nvarchar(20)), N'NULL')
        + N', allowed are 0 and above';
    THROW 51001, @message, 3;
END;

-- Read: clock first, then the rows, without a lock that lasts.
SET @clock = SYSUTCDATETIME();
SELECT @row_generation = l.generation
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;
SELECT @term_until = t.lease_until, @term_released_at = t.released_at
  FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
 WHERE t.resource = @resource AND t.generation = @row_generation;

SET @own_transaction = 0;
IF @row_generation = @generation AND @term_released_at IS NULL AND @term_until > @clock
    SET @outcome = N'held';
ELSE IF @row_generation = @generation
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
    IF @found = 1
        SELECT @row_generation = l.generation, @row_owner = l.owner, @row_floor = l.floor
          FROM fence.lease l WITH (READCOMMITTEDLOCK)
         WHERE l.resource = @resource;
    UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    SELECT @term_until = t.lease_until, @term_released_at = t.released_at
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;

    -- Clock: after the wait. Decide.
    SET @clock = SYSUTCDATETIME();
    IF @row_generation = @generation
        SET @outcome = CASE WHEN @term_released_at IS NULL AND @term_until > @clock THEN N'held' ELSE N'removed' END;
END;

IF @outcome = N'removed'
BEGIN
    -- Write; the floor last, since every other remove waits for it.
    DELETE FROM fence.lease WHERE resource = @resource;
    DELETE FROM fence.lease_term WHERE resource = @resource;
    DELETE FROM fence.publication WHERE resource = @resource;
    DELETE FROM fence.publication_key WHERE resource = @resource;
    UPDATE fence.floor WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET at_least = at_least;
    SELECT @floor_after = f.at_least FROM fence.floor f WITH (READCOMMITTEDLOCK);
    IF @floor_after < @row_generation
        SET @floor_after = @row_generation;
    IF @floor_after < @row_floor
        SET @floor_after = @row_floor;
    UPDATE fence.floor SET at_least = @floor_after;
    -- A row that raise_floor made and nobody acquired has generation 0 in each of its lives.
    UPDATE fence.intervention
       SET performed_by = @by,
           note = @note,
           performed_at = @clock,
           result = @floor_after
     WHERE resource = @resource AND generation = @generation AND operation = N'remove';
    SET @found = @@ROWCOUNT;
    IF @found = 0
        INSERT INTO fence.intervention (
            resource, generation, operation, performed_by, note, performed_at, previous_owner, result)
        VALUES (@resource, @generation, N'remove', @by, @note, @clock, @row_owner, @floor_after);
END;
ELSE IF @outcome IS NULL
BEGIN
    SELECT @floor_after = i.result
      FROM fence.intervention i WITH (READCOMMITTEDLOCK)
     WHERE i.resource = @resource AND i.generation = @generation
       AND i.operation = N'remove' AND i.performed_by = @by;
    SET @outcome = CASE WHEN @floor_after IS NULL THEN N'not_found' ELSE N'removed' END;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT @outcome AS outcome,
       @floor_after AS floor_after;
