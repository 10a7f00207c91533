-- Gives a lease back, so that another owner need not wait for it to run out.
--
-- The owner stays in the row, and released_at says that it is over.
--
-- Parameters  @resource, @owner, @generation  the token
-- Result      one row: outcome; reason (NULL unless refused); when refused the observation:
--             observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    released · replayed (it was released before) · refused
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner
-- Locks       lease, lease_term; none when the plain read refuses or replays
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.release
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @outcome nvarchar(16);
DECLARE @reason nvarchar(32);
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_released_at datetime2(7);
DECLARE @term_until datetime2(7);

EXEC fence.assert_token @resource, @owner, @generation;

-- Read: what refuses or replays here is final, and the caller holds no lock.
SELECT @row_generation = l.generation, @row_owner = l.owner, @row_released_at = l.released_at
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;
SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);

SET @own_transaction = 0;
IF @reason IS NULL
BEGIN
    -- Lock identity, then time, and read again.
    IF @@TRANCOUNT = 0
    BEGIN
        SET @own_transaction = 1;
        BEGIN TRANSACTION;
    END;
    UPDATE fence.lease WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    -- It may be gone, and its name may have another row by now.
    SET @row_generation = NULL;
    SET @row_owner = NULL;
    SET @row_released_at = NULL;
    SELECT @row_generation = l.generation, @row_owner = l.owner, @row_released_at = l.released_at
      FROM fence.lease l WITH (READCOMMITTEDLOCK)
     WHERE l.resource = @resource;
    SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
    IF @reason IS NULL
        UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
           SET generation = generation
         WHERE resource = @resource;
END;

SET @clock = SYSUTCDATETIME();

IF @reason IS NULL
BEGIN
    SET @outcome = N'released';
    UPDATE fence.lease SET released_at = @clock WHERE resource = @resource;
    UPDATE fence.lease_term SET released_at = @clock WHERE resource = @resource;
END;
ELSE IF @reason = N'released'
BEGIN
    SET @outcome = N'replayed';
    SET @reason = NULL;
END;
ELSE
BEGIN
    SET @outcome = N'refused';
    SELECT @term_until = t.lease_until
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;
    EXEC fence.record_rejection
        @resource, N'release', @reason, @generation, @owner,
        @row_generation, @row_owner, @term_until, @clock;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT @outcome AS outcome,
       @reason AS reason,
       CASE WHEN @reason IS NOT NULL THEN @row_generation END AS observed_generation,
       CASE WHEN @reason IS NOT NULL THEN @row_owner END AS observed_owner,
       CASE WHEN @reason IS NOT NULL THEN @term_until END AS observed_lease_until,
       CASE WHEN @reason IS NOT NULL THEN @clock END AS observed_at;
