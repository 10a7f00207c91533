-- A stalled worker is refused: sqlcmd.
--
--   sqlcmd -S host -d database -I -b -v resource="report:42" -i sqlserver.sql
--
-- An answer is one row. T-SQL catches it with INSERT … EXEC, into a table of the same columns; a client
-- program simply reads it. Arguments are written with N'': without it, letters outside of the server's code
-- page are lost.
SET NOCOUNT ON;
SET XACT_ABORT ON;

DECLARE @resource nvarchar(255) = N'$(resource)';
DECLARE @request_id uniqueidentifier = NEWID();
DECLARE @outcome nvarchar(16) = N'held';
DECLARE @reason nvarchar(32);
DECLARE @slow bigint;
DECLARE @fast bigint;
DECLARE @revision bigint;
DECLARE @observed nvarchar(400);

DECLARE @acquired TABLE (
    outcome nvarchar(16), generation bigint, lease_until datetime2(7), remaining_ms bigint,
    holder nvarchar(255), holder_attributes nvarchar(max));
DECLARE @published TABLE (
    outcome nvarchar(16), reason nvarchar(32), published_at datetime2(7), revision bigint, late_ms bigint,
    attempted_at datetime2(7), observed_generation bigint, observed_owner nvarchar(255),
    observed_lease_until datetime2(7), observed_at datetime2(7));
DECLARE @checked TABLE (
    outcome nvarchar(16), reason nvarchar(32), late_ms bigint, observed_generation bigint,
    observed_owner nvarchar(255), observed_lease_until datetime2(7), observed_at datetime2(7));
DECLARE @released TABLE (
    outcome nvarchar(16), reason nvarchar(32), observed_generation bigint, observed_owner nvarchar(255),
    observed_lease_until datetime2(7), observed_at datetime2(7));

-- The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
INSERT @acquired EXEC fence.acquire @resource, N'slow', 1, @request_id;
SELECT @outcome = outcome, @slow = generation FROM @acquired;
PRINT CONCAT(N'slow acquire: ', @outcome, N', generation ', @slow);

-- Had the reply been lost, the same call with the same request_id would bring the same answer.
DELETE @acquired;
INSERT @acquired EXEC fence.acquire @resource, N'slow', 1, @request_id;
SELECT @outcome = outcome, @slow = generation FROM @acquired;
PRINT CONCAT(N'slow acquire again: ', @outcome, N', generation ', @slow);

-- The fast worker asks until the lease has run out, and takes over with the next generation.
SET @outcome = N'held';
WHILE @outcome = N'held'
BEGIN
    DELETE @acquired;
    INSERT @acquired EXEC fence.acquire @resource, N'fast', 60000;
    SELECT @outcome = outcome, @fast = generation FROM @acquired;
END;
PRINT CONCAT(N'fast acquire: ', @outcome, N', generation ', @fast);

-- It publishes, and repeats the call as after a lost reply: one operation_key for one result.
INSERT @published EXEC fence.publish @resource, N'fast', @fast, N'{"rows": 12}', @operation_key = N'build-1';
SELECT @outcome = outcome, @revision = revision FROM @published;
PRINT CONCAT(N'fast publish: ', @outcome, N', revision ', @revision);
DELETE @published;
INSERT @published EXEC fence.publish @resource, N'fast', @fast, N'{"rows": 12}', @operation_key = N'build-1';
SELECT @outcome = outcome, @revision = revision FROM @published;
PRINT CONCAT(N'fast publish again: ', @outcome, N', revision ', @revision);

-- The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
DELETE @published;
INSERT @published EXEC fence.publish @resource, N'slow', @slow, N'{"rows": 11}', @operation_key = N'build-1';
SELECT @outcome = outcome, @reason = reason,
       @observed = CONCAT(observed_owner, N' has generation ', observed_generation)
  FROM @published;
PRINT CONCAT(N'slow publish: ', @outcome, N', ', @reason, N': ', @observed);

-- A write of one's own is fenced by check, first in its transaction.
BEGIN TRANSACTION;
INSERT @checked EXEC fence.[check] @resource, N'slow', @slow;
SELECT @outcome = outcome, @reason = reason,
       @observed = CONCAT(observed_owner, N' has generation ', observed_generation)
  FROM @checked;
IF @outcome = N'ok'
    INSERT report VALUES (@resource, 'by slow');
COMMIT;
PRINT CONCAT(N'slow check: ', @outcome, N', ', @reason, N': ', @observed);

DELETE @checked;
BEGIN TRANSACTION;
INSERT @checked EXEC fence.[check] @resource, N'fast', @fast;
SELECT @outcome = outcome FROM @checked;
IF @outcome = N'ok'
    INSERT report VALUES (@resource, 'by fast');
COMMIT;
PRINT CONCAT(N'fast check: ', @outcome);

INSERT @released EXEC fence.release @resource, N'fast', @fast;
SELECT @outcome = outcome FROM @released;
PRINT CONCAT(N'fast release: ', @outcome);
