-- Makes later acquisitions start above a number: after a restore, or a move from another database.
--
-- It does not supersede a holder. When it returns, no acquisition that is still to commit gives out a lower
-- number: it waits for those under way.
--
-- Parameters  @resource  the resource it is for; NULL: all of them
--             @at_least  later generations are higher than this; 0 to 2^62
-- Result      one row: outcome; floor_before; floor_after
-- Outcomes    raised · unchanged (it was there already)
-- Locks       with a resource: lease, whose row it creates where there is none; without one: the table floor,
--             exclusively. The wait is bounded: 1222 after 5 s, or the caller's own LOCK_TIMEOUT
-- Errors      51001 invalid argument; 51003 retry the transaction; 1222 acquisitions are under way: busy
CREATE PROCEDURE fence.raise_floor
    @resource nvarchar(256),
    @at_least bigint
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @found int;
DECLARE @floor_before bigint;
DECLARE @floor_after bigint;
DECLARE @message nvarchar(400);

IF @resource IS NOT NULL
    EXEC fence.assert_name @resource, N'resource';
IF @at_least IS NULL OR @at_least < 0 OR @at_least > 4611686018427387904
BEGIN
    SET @message = N'invalid argument at_least: ' + COALESCE(CAST(@at_least AS nvarchar(20)), N'NULL')
        + N', allowed are 0 to 4611686018427387904';
    THROW 51001, @message, 14;
END;

-- Lock.
IF @@LOCK_TIMEOUT < 0 OR @@LOCK_TIMEOUT > 5000
    SET LOCK_TIMEOUT 5000;
SET @own_transaction = 0;
IF @@TRANCOUNT = 0
BEGIN
    SET @own_transaction = 1;
    BEGIN TRANSACTION;
END;
IF @resource IS NOT NULL
BEGIN
    UPDATE fence.lease WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    SET @found = @@ROWCOUNT;
    IF @found = 0
    BEGIN
        SET @clock = SYSUTCDATETIME();
        SET XACT_ABORT OFF;
        BEGIN TRY
            INSERT INTO fence.lease (resource, generation, acquired_at, released_at)
            VALUES (@resource, 0, @clock, @clock);
            INSERT INTO fence.lease_term (resource, generation, ttl_ms, lease_until, released_at, renewed_at)
            VALUES (@resource, 0, 1, @clock, @clock, @clock);
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() NOT IN (2627, 2601)
            BEGIN
                SET XACT_ABORT ON;
                THROW;
            END;
        END CATCH;
        SET XACT_ABORT ON;
        UPDATE fence.lease WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
           SET generation = generation
         WHERE resource = @resource;
        SET @found = @@ROWCOUNT;
        IF @found = 0
            THROW 51003, N'the resource was removed in the meantime: retry the transaction', 1;
    END;
    SELECT @floor_before = l.floor
      FROM fence.lease l WITH (READCOMMITTEDLOCK)
     WHERE l.resource = @resource;
END;
ELSE
BEGIN
    -- Every acquisition under way holds this row shared until it commits: it is waited for, or waits.
    UPDATE fence.floor WITH (READCOMMITTEDLOCK, TABLOCKX)
       SET at_least = at_least;
    SELECT @floor_before = f.at_least FROM fence.floor f WITH (READCOMMITTEDLOCK);
END;

-- Decide and write.
SET @floor_after = CASE WHEN @at_least > @floor_before THEN @at_least ELSE @floor_before END;
IF @floor_after > @floor_before
BEGIN
    IF @resource IS NOT NULL
        UPDATE fence.lease SET floor = @at_least WHERE resource = @resource;
    ELSE
        UPDATE fence.floor SET at_least = @at_least;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT CASE WHEN @floor_after > @floor_before THEN N'raised' ELSE N'unchanged' END AS outcome,
       @floor_before AS floor_before,
       @floor_after AS floor_after;
