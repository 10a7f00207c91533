-- Lets a lease last for ttl_ms from now, whether that is longer or shorter than before.
--
-- An expired lease that nobody took over is renewed too: the generation decides, not the clock.
--
-- Parameters  @resource, @owner, @generation  the token
--             @ttl_ms                         from now, ms
-- Result      one row: outcome; reason (NULL when renewed); lease_until; remaining_ms; when refused the
--             observation: observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    renewed · refused
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released
-- Locks       lease_term only, never lease, so that a fenced transaction does not stop its own renewal; none
--             when the plain read refuses. Call it in a transaction of its own
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.renew
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @ttl_ms bigint
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @reason nvarchar(32);
DECLARE @term_generation bigint;
DECLARE @term_owner nvarchar(255);
DECLARE @term_until datetime2(7);
DECLARE @term_released_at datetime2(7);
DECLARE @lease_until datetime2(7);

EXEC fence.assert_token @resource, @owner, @generation;
EXEC fence.assert_duration @ttl_ms, N'ttl_ms';

-- Read: what refuses here is final, and the refused caller holds no lock.
SELECT @term_generation = t.generation, @term_owner = t.owner,
       @term_until = t.lease_until, @term_released_at = t.released_at
  FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
 WHERE t.resource = @resource;
SET @reason = fence.refusal_reason(@generation, @owner, @term_generation, @term_owner, @term_released_at);

SET @own_transaction = 0;
IF @reason IS NULL
BEGIN
    -- Lock, and read again: a take-over may have come first.
    IF @@TRANCOUNT = 0
    BEGIN
        SET @own_transaction = 1;
        BEGIN TRANSACTION;
    END;
    UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
       SET generation = generation
     WHERE resource = @resource;
    -- It may be gone, and its name may have another row by now.
    SET @term_generation = NULL;
    SET @term_owner = NULL;
    SET @term_until = NULL;
    SET @term_released_at = NULL;
    SELECT @term_generation = t.generation, @term_owner = t.owner,
           @term_until = t.lease_until, @term_released_at = t.released_at
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;
    SET @reason = fence.refusal_reason(@generation, @owner, @term_generation, @term_owner, @term_released_at);
END;

-- Clock: after the wait, or the new lease would be shorter than asked for, even over already.
SET @clock = SYSUTCDATETIME();

IF @reason IS NULL
BEGIN
    SET @lease_until = fence.plus_ms(@clock, @ttl_ms);
    UPDATE fence.lease_term
       SET ttl_ms = @ttl_ms,
           lease_until = @lease_until,
           renewed_at = @clock,
           renewals = renewals + 1
     WHERE resource = @resource;
END;
ELSE
    EXEC fence.record_rejection
        @resource, N'renew', @reason, @generation, @owner,
        @term_generation, @term_owner, @term_until, @clock;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT CASE WHEN @reason IS NULL THEN N'renewed' ELSE N'refused' END AS outcome,
       @reason AS reason,
       @lease_until AS lease_until,
       CASE WHEN @reason IS NULL THEN @ttl_ms END AS remaining_ms,
       CASE WHEN @reason IS NOT NULL THEN @term_generation END AS observed_generation,
       CASE WHEN @reason IS NOT NULL THEN @term_owner END AS observed_owner,
       CASE WHEN @reason IS NOT NULL THEN @term_until END AS observed_lease_until,
       CASE WHEN @reason IS NOT NULL THEN @clock END AS observed_at;
