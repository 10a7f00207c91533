-- What check and require have in common: holds the lease row until the caller's transaction ends, if the
-- caller's acquisition still counts.
--
-- Internal: called by check and require, executable by no role.
--
-- Parameters  @resource, @owner, @generation  the token
--             @policy                         until_superseded · unexpired
--             @raise                          1: raise where the answer would be rejected
-- Result      one row, as check gives it
-- Locks       lease; none when the plain read rejects
-- Errors      51001 invalid argument; 51002 no transaction; 51100 refused
CREATE PROCEDURE fence.check_token
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @policy nvarchar(33),
    @raise bit
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @clock datetime2(7);
DECLARE @outcome nvarchar(16);
DECLARE @reason nvarchar(32);
DECLARE @late_ms bigint;
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_released_at datetime2(7);
DECLARE @term_until datetime2(7);
DECLARE @message nvarchar(2000);
DECLARE @state int;

-- Without a transaction the row would be free again when the answer arrives. Under implicit transactions the
-- first read below opens it.
IF @@TRANCOUNT = 0 AND (@@OPTIONS & 2) = 0
    THROW 51002, N'no transaction: check and require hold the lease row until the caller''s transaction ends', 1;
EXEC fence.assert_token @resource, @owner, @generation;
EXEC fence.assert_policy @policy;

-- Read: clock first, then the rows, without a lock that lasts.
SET @clock = SYSUTCDATETIME();
SELECT @row_generation = l.generation, @row_owner = l.owner, @row_released_at = l.released_at
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;
SELECT @term_until = t.lease_until
  FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
 WHERE t.resource = @resource AND t.generation = @row_generation;
SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
IF @reason IS NULL
    SET @reason = fence.time_reason(@policy, @term_until, @clock, NULL, NULL);

IF @reason IS NULL
BEGIN
    -- Lock the identity, so that no take-over commits before the caller does, and read again.
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

    -- Clock: after the wait, and before the time row, whose renewals do not wait for us.
    SET @clock = SYSUTCDATETIME();
    SET @term_until = NULL;
    SELECT @term_until = t.lease_until
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;

    -- Decide.
    SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
    IF @reason IS NULL
        SET @reason = fence.time_reason(@policy, @term_until, @clock, NULL, NULL);
END;

IF @reason IS NULL
BEGIN
    SET @outcome = N'ok';
    IF @term_until < @clock
        SET @late_ms = (DATEDIFF_BIG(microsecond, @term_until, @clock) + 999) / 1000;
END;
ELSE
BEGIN
    SET @outcome = N'rejected';
    IF @term_until IS NULL
        SELECT @term_until = t.lease_until
          FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
         WHERE t.resource = @resource;
    IF @raise = 1
    BEGIN
        -- The state says why, and the observation stands at the end of the message as a JSON object: an error
        -- has no other place for them here.
        SET @state = CASE @reason WHEN N'not_found' THEN 1 WHEN N'superseded' THEN 2 WHEN N'ahead_of_issuer' THEN 3
                                  WHEN N'wrong_owner' THEN 4 WHEN N'released' THEN 5 WHEN N'expired' THEN 6 ELSE 0 END;
        SET @message = CONCAT(
            N'refused by the fence: ', @reason,
            N' (resource ', @resource, N', owner ', @owner, N', generation ', @generation, N') {"reason":"', @reason,
            N'","observed_generation":', COALESCE(CAST(@row_generation AS nvarchar(20)), N'null'),
            N',"observed_owner":', COALESCE(N'"' + STRING_ESCAPE(@row_owner, 'json') + N'"', N'null'),
            N',"observed_lease_until":', COALESCE(N'"' + REPLACE(CONVERT(nvarchar(33), @term_until, 126), N' ', N'T') + N'Z"', N'null'),
            N',"observed_at":"', REPLACE(CONVERT(nvarchar(33), @clock, 126), N' ', N'T'), N'Z"}');
        THROW 51100, @message, @state;
    END;
    EXEC fence.record_rejection
        @resource, N'check', @reason, @generation, @owner,
        @row_generation, @row_owner, @term_until, @clock;
END;

SELECT @outcome AS outcome,
       @reason AS reason,
       @late_ms AS late_ms,
       CASE WHEN @reason IS NOT NULL THEN @row_generation END AS observed_generation,
       CASE WHEN @reason IS NOT NULL THEN @row_owner END AS observed_owner,
       CASE WHEN @reason IS NOT NULL THEN @term_until END AS observed_lease_until,
       CASE WHEN @reason IS NOT NULL THEN @clock END AS observed_at;
