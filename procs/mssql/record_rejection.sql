-- Counts a refusal with its cause.
--
-- Internal: called by the other routines, executable by no role.
--
-- Parameters  @resource, @operation, @reason  what was refused and why
--             @generation, @owner             the caller's token
--             @observed_*                     the row as the decision saw it
-- Locks       rejection: a row of the same token that nobody else holds; it never waits
-- Errors      none
CREATE PROCEDURE fence.record_rejection
    @resource nvarchar(256),
    @operation nvarchar(16),
    @reason nvarchar(32),
    @generation bigint,
    @owner nvarchar(256),
    @observed_generation bigint,
    @observed_owner nvarchar(256),
    @observed_lease_until datetime2(7),
    @observed_at datetime2(7)
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @rejection_id uniqueidentifier;
DECLARE @since datetime2(7);

SET @since = DATEADD(minute, -1, @observed_at);

-- A locked row belongs to a refusal whose transaction is still open: a row of our own instead of a wait.
SELECT TOP (1) @rejection_id = r.rejection_id
  FROM fence.rejection r WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, UPDLOCK)
 WHERE r.resource = @resource
   AND r.generation = @generation AND r.owner = @owner
   AND r.operation = @operation AND r.reason = @reason
   AND r.first_at > @since
 ORDER BY r.first_at DESC;

IF @rejection_id IS NULL
    INSERT INTO fence.rejection (
        resource, rejection_id, operation, reason, generation, owner, first_at, last_at,
        observed_generation, observed_owner, observed_lease_until, observed_at)
    VALUES (
        @resource, NEWID(), @operation, @reason, @generation, @owner, @observed_at, @observed_at,
        @observed_generation, @observed_owner, @observed_lease_until, @observed_at);
ELSE
    UPDATE fence.rejection
       SET occurrences = occurrences + 1,
           last_at = @observed_at,
           observed_generation = @observed_generation,
           observed_owner = @observed_owner,
           observed_lease_until = @observed_lease_until,
           observed_at = @observed_at
     WHERE resource = @resource AND rejection_id = @rejection_id;
