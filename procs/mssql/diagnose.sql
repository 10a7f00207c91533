-- Explains why the caller's own conditional UPDATE changed nothing: the read that follows it.
--
-- It comes later than the UPDATE, and another acquisition may have landed in between. So it names a cause
-- only where the row proves it, and says unknown otherwise: docs/semantics.md#reasons has the proofs.
--
-- Parameters  @resource, @owner, @generation  the token
--             @attempted_at  this database's clock (SYSUTCDATETIME), read before the UPDATE; NULL or a time
--                            still to come proves nothing, and gives unknown wherever time is needed
--             @policy        what the UPDATE demanded: until_superseded · unexpired
-- Result      one row: reason; certain (false when unknown); observed_generation, observed_owner,
--             observed_lease_until, observed_at
-- Reasons     superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only) · unknown
-- Locks       none that last; read only
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.diagnose
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @attempted_at datetime2(7) = NULL,
    @policy nvarchar(33) = N'until_superseded'
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @clock datetime2(7);
DECLARE @reason nvarchar(32);
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_acquired_at datetime2(7);
DECLARE @row_released_at datetime2(7);
DECLARE @term_until datetime2(7);
DECLARE @term_renewed_at datetime2(7);

EXEC fence.assert_token @resource, @owner, @generation;
EXEC fence.assert_policy @policy;

-- Clock first, then both rows in one statement: they belong together.
SET @clock = SYSUTCDATETIME();
SELECT @row_generation = l.generation, @row_owner = l.owner,
       @row_acquired_at = l.acquired_at, @row_released_at = l.released_at,
       @term_until = t.lease_until, @term_renewed_at = t.renewed_at
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
  JOIN fence.lease_term t WITH (READCOMMITTEDLOCK) ON t.resource = l.resource
 WHERE l.resource = @resource AND t.resource = @resource;

IF @attempted_at > @clock
    SET @attempted_at = NULL;

SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
IF @reason IS NULL
    -- The token is good, so until_superseded has no reason to refuse, and unexpired has only one: that the
    -- lease was over. Alive again, it was renewed since; alive all along, nothing explains it.
    SET @reason = CASE WHEN @policy = N'unexpired'
                        AND (@term_until <= @clock OR @term_renewed_at > @attempted_at) THEN N'expired'
                       ELSE N'unknown' END;
ELSE IF @reason = N'not_found'
    -- It may have been removed since.
    SET @reason = N'unknown';
ELSE IF @reason = N'superseded' AND (@attempted_at IS NULL OR @row_acquired_at > @attempted_at)
    -- That acquisition may have come after the UPDATE.
    SET @reason = N'unknown';
ELSE IF @reason = N'released' AND @policy = N'unexpired'
     AND (@attempted_at IS NULL OR @row_released_at > @attempted_at)
    -- Expired first and released after the UPDATE, or released before it: both are possible.
    SET @reason = N'unknown';

SELECT @reason AS reason,
       CAST(CASE WHEN @reason = N'unknown' THEN 0 ELSE 1 END AS bit) AS certain,
       @row_generation AS observed_generation,
       @row_owner AS observed_owner,
       @term_until AS observed_lease_until,
       @clock AS observed_at;
