-- Refused calls, with the cause: different causes ask for different action.

-- +goose Up

-- Repeats of one (token, operation, reason) within a minute are counted in one row, so that a worker
-- that loops on a refusal does not fill the disk.
CREATE TABLE fence.rejection (
    resource                text COLLATE "C" NOT NULL,
    rejection_id            uuid        NOT NULL,
    operation               text COLLATE "C" NOT NULL,
    reason                  text COLLATE "C" NOT NULL,
    generation              bigint      NOT NULL,
    owner                   text COLLATE "C" NOT NULL,
    occurrences             bigint      NOT NULL DEFAULT 1,
    first_at                timestamptz NOT NULL,
    last_at                 timestamptz NOT NULL,
    observed_generation     bigint,
    observed_owner          text COLLATE "C",
    observed_lease_until    timestamptz,
    observed_at             timestamptz NOT NULL,
    PRIMARY KEY (resource, rejection_id)
) WITH (
    fillfactor = 80
);

-- Finds the row to count in. It ends in first_at, which never changes: counting stays HOT.
CREATE INDEX rejection_token ON fence.rejection (resource, generation, owner, operation, reason, first_at);

-- What prune and the hourly view look for.
CREATE INDEX rejection_age ON fence.rejection (first_at);

-- +goose Down

DROP TABLE fence.rejection;
