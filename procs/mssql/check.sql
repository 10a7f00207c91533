-- Fences the caller's own writes: holds the lease row until the caller's transaction ends, if the caller's
-- acquisition still counts.
--
-- Call it first in a transaction, write, commit: no other acquisition can commit in between. A lock taken
-- after a savepoint may be given back by ROLLBACK to it: check before the savepoint, or again after it.
--
-- Parameters  @resource, @owner, @generation  the token
--             @policy                         until_superseded · unexpired
-- Result      one row: outcome; reason (NULL when ok); late_ms (how long the lease has been over, NULL: it is
--             not); when rejected the observation: observed_generation, observed_owner, observed_lease_until,
--             observed_at
-- Outcomes    ok · rejected
-- Reasons     not_found · superseded · ahead_of_issuer · wrong_owner · released · expired (unexpired only)
-- Locks       lease; none when the plain read rejects
-- Errors      51001 invalid argument; 51002 no transaction
CREATE PROCEDURE fence.[check]
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @policy nvarchar(33) = N'until_superseded'
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

EXEC fence.check_token @resource, @owner, @generation, @policy, 0;
