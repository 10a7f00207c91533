-- Identity and time of a lease, in two rows, so that a fenced transaction (which holds the first) never
-- stands in the way of its own renewal (which touches the second only).

-- +goose Up

-- Who: locked by check and publish until their transaction ends.
CREATE TABLE fence.lease (
    resource            text COLLATE "C" NOT NULL PRIMARY KEY,
    generation          bigint      NOT NULL,
    owner               text COLLATE "C",
    acquired_at         timestamptz NOT NULL,
    released_at         timestamptz,
    request_id          uuid,
    epoch               bigint      NOT NULL DEFAULT 1,
    floor               bigint      NOT NULL DEFAULT 0,
    accepted_generation bigint      NOT NULL DEFAULT 0,
    revision            bigint      NOT NULL DEFAULT 0
) WITH (
    -- Room on each page for new row versions, and no second index: updates stay HOT.
    fillfactor = 70,
    -- The rows are few and rewritten all the time: vacuum by count, not by share.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Until when: all that renew reads and writes. No index on a column that a renewal changes.
CREATE TABLE fence.lease_term (
    resource    text COLLATE "C" NOT NULL PRIMARY KEY,
    generation  bigint      NOT NULL,
    owner       text COLLATE "C",
    attributes  jsonb,
    ttl_ms      bigint      NOT NULL,
    lease_until timestamptz NOT NULL,
    released_at timestamptz,
    renewed_at  timestamptz NOT NULL,
    renewals    bigint      NOT NULL DEFAULT 0
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- What an operator did to a lease, and the answer that a repeated call gets.
CREATE TABLE fence.intervention (
    resource        text COLLATE "C" NOT NULL,
    generation      bigint      NOT NULL,
    operation       text COLLATE "C" NOT NULL,
    performed_by    text COLLATE "C" NOT NULL,
    note            text,
    performed_at    timestamptz NOT NULL,
    previous_owner  text COLLATE "C",
    result          bigint      NOT NULL,
    PRIMARY KEY (resource, generation, operation)
);

-- +goose Down

-- The rows know the last numbers; the floor must know them before the rows go. Whoever is about to commit a
-- number is waited for first: read any earlier, it would be missed.
LOCK TABLE fence.lease, fence.floor IN ACCESS EXCLUSIVE MODE;
UPDATE fence.floor
   SET at_least = greatest(at_least, (SELECT coalesce(max(greatest(l.generation, l.floor)), 0) FROM fence.lease l));

DROP TABLE fence.intervention;
DROP TABLE fence.lease_term;
DROP TABLE fence.lease;
