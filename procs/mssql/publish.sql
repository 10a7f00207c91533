-- Stores a result, if the caller's acquisition of the resource still counts.
--
-- Parameters  @resource, @owner, @generation  the token
--             @payload            the result
--             @content_type       what it is; 1 to 255 characters
--             @operation_key      names this call within its generation: a repeated call gets the first answer; NULL: none
--             @policy             until_superseded: counts until another acquisition took over; unexpired: and
--                                 only while the lease lasts
--             @source_as_of       how old the data is that the result was made from, UTC; NULL: not known
--             @max_source_age_ms  refuse older data, ms; NULL: no limit
--             @then_release       release the lease in the same commit
-- Result      one row: outcome; reason (NULL unless rejected); published_at; revision; late_ms (how long after
--             lease_until it was accepted, NULL: in time); attempted_at; when rejected the observation:
--             observed_generation, observed_owner, observed_lease_until, observed_at
-- Outcomes    accepted · replayed (this operation key was accepted before; its answer again) · rejected
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only) ·
--             stale_source · key_conflict (the key was accepted with other content)
-- Locks       lease, (then_release: lease_term,) publication; none when the plain read rejects or replays
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.publish
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @payload nvarchar(max),
    @content_type nvarchar(256) = N'application/json',
    @operation_key nvarchar(256) = NULL,
    @policy nvarchar(33) = N'until_superseded',
    @source_as_of datetime2(7) = NULL,
    @max_source_age_ms bigint = NULL,
    @then_release bit = 0
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @own_transaction bit;
DECLARE @clock datetime2(7);
DECLARE @attempted_at datetime2(7);
DECLARE @outcome nvarchar(16);
DECLARE @reason nvarchar(32);
DECLARE @fingerprint varbinary(32);
DECLARE @row_generation bigint;
DECLARE @row_owner nvarchar(255);
DECLARE @row_released_at datetime2(7);
DECLARE @row_revision bigint;
DECLARE @term_until datetime2(7);
DECLARE @key_fingerprint varbinary(32);
DECLARE @published_at datetime2(7);
DECLARE @revision bigint;
DECLARE @late_ms bigint;
DECLARE @found int;

EXEC fence.assert_token @resource, @owner, @generation;
EXEC fence.assert_name @content_type, N'content_type';
EXEC fence.assert_policy @policy;
IF @payload IS NULL
    THROW 51001, N'invalid argument payload: it must not be NULL', 6;
IF @then_release IS NULL
    THROW 51001, N'invalid argument then_release: it must not be NULL', 12;
IF @max_source_age_ms IS NOT NULL
BEGIN
    EXEC fence.assert_duration @max_source_age_ms, N'max_source_age_ms';
    IF @source_as_of IS NULL
        THROW 51001, N'invalid argument source_as_of: it must not be NULL when max_source_age_ms is given', 10;
END;
IF @operation_key IS NOT NULL
BEGIN
    EXEC fence.assert_name @operation_key, N'operation_key';
    SET @fingerprint = HASHBYTES('SHA2_256', CONCAT(
        @content_type, NCHAR(10), @policy, NCHAR(10), CAST(@then_release AS nvarchar(1)), NCHAR(10), @payload));
END;

-- Read: clock first, then the rows, without a lock that lasts. The lease before the key, so that a retry
-- which overlaps its own then_release finds the key that was committed with the release.
SET @attempted_at = SYSUTCDATETIME();
SET @clock = @attempted_at;
SELECT @row_generation = l.generation, @row_owner = l.owner, @row_released_at = l.released_at
  FROM fence.lease l WITH (READCOMMITTEDLOCK)
 WHERE l.resource = @resource;
SELECT @term_until = t.lease_until
  FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
 WHERE t.resource = @resource AND t.generation = @row_generation;
IF @operation_key IS NOT NULL
    SELECT @key_fingerprint = k.fingerprint, @revision = k.revision,
           @published_at = k.published_at, @late_ms = k.late_ms
      FROM fence.publication_key k WITH (READCOMMITTEDLOCK)
     WHERE k.resource = @resource AND k.generation = @generation
       AND k.owner = @owner AND k.operation_key = @operation_key;

IF @key_fingerprint = @fingerprint
    SET @outcome = N'replayed';
ELSE
BEGIN
    SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
    IF @reason IS NULL
        SET @reason = fence.time_reason(@policy, @term_until, @clock, @source_as_of, @max_source_age_ms);
    IF @reason IS NULL AND @key_fingerprint <> @fingerprint
        SET @reason = N'key_conflict';
END;

SET @own_transaction = 0;
IF @outcome IS NULL AND @reason IS NULL
BEGIN
    -- Lock the identity, so that no take-over commits before we do, and read again.
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
    SELECT @row_generation = l.generation, @row_owner = l.owner, @row_released_at = l.released_at,
           @row_revision = l.revision
      FROM fence.lease l WITH (READCOMMITTEDLOCK)
     WHERE l.resource = @resource;
    SET @reason = fence.refusal_reason(@generation, @owner, @row_generation, @row_owner, @row_released_at);
    -- A caller that was overtaken while it waited must not hold up the new holder's renewals.
    IF @then_release = 1 AND @reason IS NULL
        UPDATE fence.lease_term WITH (READCOMMITTEDLOCK, ROWLOCK, XLOCK)
           SET generation = generation
         WHERE resource = @resource;
    IF @operation_key IS NOT NULL
        SELECT @key_fingerprint = k.fingerprint, @revision = k.revision,
               @published_at = k.published_at, @late_ms = k.late_ms
          FROM fence.publication_key k WITH (READCOMMITTEDLOCK)
         WHERE k.resource = @resource AND k.generation = @generation
           AND k.owner = @owner AND k.operation_key = @operation_key;

    -- Clock: after the last wait, and before the time row, whose renewals do not wait for us.
    SET @clock = SYSUTCDATETIME();
    SET @term_until = NULL;
    SELECT @term_until = t.lease_until
      FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
     WHERE t.resource = @resource;

    -- Decide.
    IF @key_fingerprint = @fingerprint
    BEGIN
        SET @outcome = N'replayed';
        SET @reason = NULL;
    END;
    ELSE
    BEGIN
        IF @reason IS NULL
            SET @reason = fence.time_reason(@policy, @term_until, @clock, @source_as_of, @max_source_age_ms);
        IF @reason IS NULL AND @key_fingerprint <> @fingerprint
            SET @reason = N'key_conflict';
    END;
END;

IF @outcome IS NULL AND @reason IS NULL
BEGIN
    -- Write.
    SET @outcome = N'accepted';
    SET @published_at = @clock;
    SET @revision = @row_revision + 1;
    IF @term_until < @clock
        SET @late_ms = (DATEDIFF_BIG(microsecond, @term_until, @clock) + 999) / 1000;
    UPDATE fence.publication
       SET revision = @revision,
           generation = @generation,
           owner = @owner,
           content_type = @content_type,
           payload = @payload,
           source_as_of = @source_as_of,
           published_at = @clock,
           late_ms = @late_ms
     WHERE resource = @resource;
    SET @found = @@ROWCOUNT;
    IF @found = 0
        INSERT INTO fence.publication (
            resource, revision, generation, owner, content_type, payload, source_as_of, published_at, late_ms)
        VALUES (
            @resource, @revision, @generation, @owner, @content_type, @payload, @source_as_of, @clock, @late_ms);
    IF @operation_key IS NOT NULL
        INSERT INTO fence.publication_key (
            resource, generation, owner, operation_key, fingerprint, revision, published_at, late_ms)
        VALUES (
            @resource, @generation, @owner, @operation_key, @fingerprint, @revision, @clock, @late_ms);
    IF @late_ms IS NOT NULL
        INSERT INTO fence.late_publication (resource, revision, generation, owner, late_ms, published_at)
        VALUES (@resource, @revision, @generation, @owner, @late_ms, @clock);
    UPDATE fence.lease
       SET revision = @revision,
           accepted_generation = @generation,
           released_at = CASE WHEN @then_release = 1 THEN @clock END
     WHERE resource = @resource;
    IF @then_release = 1
        UPDATE fence.lease_term SET released_at = @clock WHERE resource = @resource;
END;
ELSE IF @outcome IS NULL
BEGIN
    SET @outcome = N'rejected';
    SET @published_at = NULL;
    SET @revision = NULL;
    SET @late_ms = NULL;
    IF @term_until IS NULL
        SELECT @term_until = t.lease_until
          FROM fence.lease_term t WITH (READCOMMITTEDLOCK)
         WHERE t.resource = @resource;
    EXEC fence.record_rejection
        @resource, N'publish', @reason, @generation, @owner,
        @row_generation, @row_owner, @term_until, @clock;
END;

IF @own_transaction = 1
    COMMIT TRANSACTION;

SELECT @outcome AS outcome,
       @reason AS reason,
       @published_at AS published_at,
       @revision AS revision,
       @late_ms AS late_ms,
       @attempted_at AS attempted_at,
       CASE WHEN @reason IS NOT NULL THEN @row_generation END AS observed_generation,
       CASE WHEN @reason IS NOT NULL THEN @row_owner END AS observed_owner,
       CASE WHEN @reason IS NOT NULL THEN @term_until END AS observed_lease_until,
       CASE WHEN @reason IS NOT NULL THEN @clock END AS observed_at;
