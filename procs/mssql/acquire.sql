-- Takes the lease of a resource and gives out its next generation, if nobody holds it.
--
-- Parameters  @resource    what is worked on
--             @owner       who asks (host, pod, run id)
--             @ttl_ms      how long until another may take over, ms
--             @request_id  names this request: a repeated call with it gets the same generation again; NULL: none
--             @attributes  a JSON object that others see while this owner holds the lease, up to 4,096 bytes
-- Result      one row: outcome; generation (NULL when held); lease_until; remaining_ms (0 to ttl);
--             holder (NULL when replayed after a release); holder_attributes
-- Outcomes    acquired · held (another acquisition is alive) · replayed (this request was granted before and
--             is still the latest; nothing was changed)
-- Locks       lease, lease_term, floor (shared); none when held or replayed is
--             seen by the plain read. The wait is bounded: 1222 after 5 s, or the caller's own LOCK_TIMEOUT
-- Errors      51001 invalid argument; 51003 retry the transaction; 1222 a transaction holds the row: busy
CREATE PROCEDURE fence.acquire
    @resource nvarchar(256),
    @owner nvarchar(256),
    @ttl_ms bigint,
    @request_id uniqueidentifier = NULL,
    @attributes nvarchar(max) = NULL
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @outcome nvarchar(16);
DECLARE @found int;
DECLARE @seen_generation bigint;
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_request uniqueidentifier;
DECLARE @row_floor bigint;
DECLARE @row_epoch bigint;
DECLARE @term_generation bigint;
DECLARE @term_owner nvarchar(255);
DECLARE @term_attributes nvarchar(max);
DECLARE @term_ttl_ms bigint;
DECLARE @term_until datetime2(7);
DECLARE @term_released_at datetime2(7);
DECLARE @floor bigint;
DECLARE @next_generation bigint;
DECLARE @next_epoch bigint;
DECLARE @remaining_ms bigint;

EXEC fence.assert_name @resource, N'resource';
EXEC fence.assert_name @owner, N'owner';
EXEC fence.assert_duration @ttl_ms, N'ttl_ms';
IF @attributes IS NOT NULL
BEGIN
    IF ISJSON(@attributes) = 0 OR LEFT(LTRIM(@attributes), 1) <> N'{' OR LEN(@attributes + N'.') - 1 > 4096
        THROW 51001, N'invalid argument attributes: it must be a JSON object of at most 4096 bytes', 5;
END;

-- Read: clock first, then the time row, without a lock that lasts. A caller who is refused here holds no row
-- lock until its transaction ends, and cannot starve the holder.
SET @clock = SYSUTCDATETIME();
SELECT @term_generation = t.generation, @term_owner = t.owner, @term_attributes = t.attributes,
       @term_ttl_ms = t.ttl_ms, @term_until = t.lease_until, @term_released_at = t.released_at
  FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
 WHERE t.resource = @resource;
SET @seen_generation = @term_generation;

IF @request_id IS NOT NULL AND @term_owner = @owner COLLATE Latin1_General_100_BIN2
BEGIN
    SELECT @row_generation = l.generation, @row_owner = l.owner, @row_request = l.request_id
      FROM fence.lease l WITH (READCOMMITTEDLOCK)
     WHERE l.resource = @resource;
    IF @row_request = @request_id AND @row_owner = @owner COLLATE Latin1_General_100_BIN2 AND @row_generation = @term_generation
        SET @outcome = N'replayed';
END;
IF @outcome IS NULL AND @term_released_at IS NULL AND @term_until > @clock
    SET @outcome = N'held';

SET @own_transaction = 0;
IF @outcome IS NULL
BEGIN
    -- Lock: identity, then time.
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

    IF @found = 0
    BEGIN
        -- An absent row cannot be locked: of many first callers one inserts it, the others wait for that
        -- one here, and all of them decide on the same row below. "It exists" must not cost the caller's
        -- transaction.
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
    SELECT @row_generation = l.generation, @row_owner = l.owner, @row_request = l.request_id,
           @row_floor = l.floor, @row_epoch = l.epoch
      FROM fence.lease l WITH (READCOMMITTEDLOCK)
     WHERE l.resource = @resource;

    -- Another acquisition came first while we waited. Its holder renews the time row: look at that row
    -- before locking it, so that a caller who lost the race does not stop the winner's renewals.
    IF @seen_generation IS NULL OR @row_generation <> @seen_generation
    BEGIN
        SET @clock = SYSUTCDATETIME();
        SELECT @term_generation = t.generation, @term_owner = t.owner, @term_attributes = t.attributes,
               @term_ttl_ms = t.ttl_ms, @term_until = t.lease_until, @term_released_at = t.released_at
          FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
         WHERE t.resource = @resource;
        IF @row_request = @request_id AND @row_owner = @owner COLLATE Latin1_General_100_BIN2
            SET @outcome = N'replayed';
        ELSE IF @term_released_at IS NULL AND @term_until > @clock
            SET @outcome = N'held';
    END;
END;

IF @outcome IS NULL
BEGIN
    UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    SELECT @term_generation = t.generation, @term_owner = t.owner, @term_attributes = t.attributes,
           @term_ttl_ms = t.ttl_ms, @term_until = t.lease_until, @term_released_at = t.released_at
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;
    -- The floor is read after the lease row is locked, and held until the number is committed: raise_floor
    -- waits for both, so its floor is not missed.
    SELECT @floor = f.at_least FROM fence.floor f WITH (REPEATABLEREAD, ROWLOCK);
    SELECT @next_epoch = e.epoch FROM fence.epoch e WITH (READCOMMITTEDLOCK);
    SET @next_generation = fence.next_generation(@row_generation, @row_floor, @row_epoch, @floor, @next_epoch);
    IF @next_epoch < @row_epoch
        SET @next_epoch = @row_epoch;

    -- Clock: after the last wait. Read any earlier, it would call a lease dead that was renewed while
    -- we waited, or grant one that has already run out: see docs/semantics.md#clock.
    SET @clock = SYSUTCDATETIME();

    -- Decide.
    IF @row_request = @request_id AND @row_owner = @owner COLLATE Latin1_General_100_BIN2
        SET @outcome = N'replayed';
    ELSE IF @term_released_at IS NULL AND @term_until > @clock
        SET @outcome = N'held';
    ELSE
        SET @outcome = N'acquired';
END;

IF @outcome = N'acquired'
BEGIN
    -- Write.
    SET @term_generation = @next_generation;
    SET @term_owner = @owner;
    SET @term_attributes = @attributes;
    SET @term_ttl_ms = @ttl_ms;
    SET @term_until = fence.plus_ms(@clock, @ttl_ms);
    SET @term_released_at = NULL;
    UPDATE fence.lease
       SET generation = @next_generation,
           owner = @owner,
           acquired_at = @clock,
           released_at = NULL,
           request_id = @request_id,
           epoch = @next_epoch
     WHERE resource = @resource;
    UPDATE fence.lease_term
       SET generation = @next_generation,
           owner = @owner,
           attributes = @attributes,
           ttl_ms = @ttl_ms,
           lease_until = @term_until,
           released_at = NULL,
           renewed_at = @clock,
           renewals = 0
     WHERE resource = @resource;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SET @remaining_ms = 0;
IF @term_released_at IS NULL AND @term_until > @clock
    SET @remaining_ms = (DATEDIFF_BIG(microsecond, @clock, @term_until) + 999) / 1000;
IF @remaining_ms > @term_ttl_ms
    SET @remaining_ms = @term_ttl_ms;

SELECT @outcome AS outcome,
       CASE WHEN @outcome <> N'held' THEN @term_generation END AS generation,
       @term_until AS lease_until,
       @remaining_ms AS remaining_ms,
       CASE WHEN @term_released_at IS NULL THEN @term_owner END AS holder,
       CASE WHEN @term_released_at IS NULL THEN @term_attributes END AS holder_attributes;
