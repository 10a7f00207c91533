-- Deletes old records, a batch of each kind a call: repeat it until every count is below the batch.
--
-- Leases stay, whatever their age (see remove), and so do the operation keys of a generation that may still
-- publish: a repeated call must find its first answer.
--
-- Parameters  @older_than_ms  how old, ms
--             @batch          at most this many rows of each kind; 1 to 100,000
-- Result      a row for each kind: table_name; removed
-- Locks       the rows it deletes; those that somebody holds are skipped
-- Errors      51001 invalid argument
CREATE PROCEDURE fence.prune
    @older_than_ms bigint,
    @batch int = 1000
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @message nvarchar(400);
DECLARE @before datetime2(7);
DECLARE @keys bigint;
DECLARE @late bigint;
DECLARE @rejections bigint;
DECLARE @interventions bigint;

EXEC fence.assert_duration @older_than_ms, N'older_than_ms';
IF @batch IS NULL OR @batch < 1 OR @batch > 100000
BEGIN
    SET @message = N'invalid argument batch: ' + COALESCE(CAST(@batch AS nvarchar(20)), N'NULL')
        + N', allowed are 1 to 100000';
    THROW 51001, @message, 16;
END;
SET @before = fence.plus_ms(SYSUTCDATETIME(), -@older_than_ms);

-- A generation never comes back and a release is final, so a key that may go now may go for ever: the lease is
-- read without a lock that lasts.
DELETE TOP (@batch) FROM fence.publication_key WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE published_at < @before
   AND NOT EXISTS (SELECT 1
                     FROM fence.lease l WITH (READCOMMITTEDLOCK)
                    WHERE l.resource = fence.publication_key.resource
                      AND l.generation = fence.publication_key.generation
                      AND l.released_at IS NULL);
SET @keys = @@ROWCOUNT;

DELETE TOP (@batch) FROM fence.late_publication WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE published_at < @before;
SET @late = @@ROWCOUNT;

DELETE TOP (@batch) FROM fence.rejection WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE first_at < @before AND last_at < @before;
SET @rejections = @@ROWCOUNT;

DELETE TOP (@batch) FROM fence.intervention WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE performed_at < @before;
SET @interventions = @@ROWCOUNT;

SELECT r.table_name, r.removed
  FROM (SELECT 1 AS position, N'publication_key' AS table_name, @keys AS removed
        UNION ALL SELECT 2, N'late_publication', @late
        UNION ALL SELECT 3, N'rejection', @rejections
        UNION ALL SELECT 4, N'intervention', @interventions) r
 ORDER BY r.position;
