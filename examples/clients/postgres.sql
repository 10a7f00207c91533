-- A stalled worker is refused: psql.
--
--   psql "$DSN" -X -q -v resource=report:42 -f postgres.sql
--
-- psql commits each statement by itself, as it should be here: \gset puts the answer's columns into variables,
-- and a NULL leaves its variable unset.
\set ON_ERROR_STOP on

-- The slow worker takes the lease for 1 ms. It will have stalled for longer than that.
SELECT gen_random_uuid() AS request_id \gset
SELECT * FROM fence.acquire(:'resource', 'slow', 1, :'request_id') \gset slow_
\echo slow acquire: :slow_outcome, generation :slow_generation

-- Had the reply been lost, the same call with the same request_id would bring the same answer.
SELECT * FROM fence.acquire(:'resource', 'slow', 1, :'request_id') \gset again_
\echo slow acquire again: :again_outcome, generation :again_generation

-- The stall.
SELECT FROM pg_sleep(0.002) \g /dev/null

-- The fast worker takes over, with the next generation.
SELECT * FROM fence.acquire(:'resource', 'fast', 60000) \gset fast_
\echo fast acquire: :fast_outcome, generation :fast_generation

-- It publishes, and repeats the call as after a lost reply: one operation_key for one result.
SELECT * FROM fence.publish(:'resource', 'fast', :fast_generation, '{"rows": 12}', p_operation_key => 'build-1') \gset fast_
\echo fast publish: :fast_outcome, revision :fast_revision
SELECT * FROM fence.publish(:'resource', 'fast', :fast_generation, '{"rows": 12}', p_operation_key => 'build-1') \gset again_
\echo fast publish again: :again_outcome, revision :again_revision

-- The slow worker wakes up. Its own clock tells it nothing; its generation tells the database.
SELECT * FROM fence.publish(:'resource', 'slow', :slow_generation, '{"rows": 11}', p_operation_key => 'build-1') \gset slow_
\echo slow publish: :slow_outcome, :slow_reason: :slow_observed_owner has generation :slow_observed_generation

-- A write of one's own is fenced by check, first in its transaction.
BEGIN;
SELECT *, outcome = 'ok' AS ok FROM fence.check(:'resource', 'slow', :slow_generation) \gset slow_
\if :slow_ok
    INSERT INTO report VALUES (:'resource', 'by slow');
\endif
COMMIT;
\echo slow check: :slow_outcome, :slow_reason: :slow_observed_owner has generation :slow_observed_generation

BEGIN;
SELECT *, outcome = 'ok' AS ok FROM fence.check(:'resource', 'fast', :fast_generation) \gset fast_
\if :fast_ok
    INSERT INTO report VALUES (:'resource', 'by fast');
\endif
COMMIT;
\echo fast check: :fast_outcome

SELECT * FROM fence.release(:'resource', 'fast', :fast_generation) \gset fast_
\echo fast release: :fast_outcome
