-- Fences the caller's own writes like check, and raises an error where check would answer rejected.
--
-- The error rolls the caller's transaction back, and with it the record of the refusal: count it in the client.
--
-- Parameters  @resource, @owner, @generation  the token
--             @policy                         until_superseded · unexpired
-- Result      one row as check gives it when ok: outcome; reason; late_ms; observed_generation,
--             observed_owner, observed_lease_until, observed_at
-- Outcomes    ok
-- Reasons     as check, in the error
-- Locks       lease
-- Errors      51100 refused: the reason in the message and, as a number, in the state (1 not_found, 2 superseded,
--             3 ahead_of_issuer, 4 wrong_owner, 5 released, 6 expired), reason and observation as a JSON object
--             at the end of the message; 51001 invalid argument; 51002 no transaction
CREATE PROCEDURE fence.require
    @resource nvarchar(256),
    @owner nvarchar(256),
    @generation bigint,
    @policy nvarchar(33) = N'until_superseded'
AS
SET NOCOUNT ON;
SET XACT_ABORT ON;

EXEC fence.check_token @resource, @owner, @generation, @policy, 1;
