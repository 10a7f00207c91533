-- Refused calls, with the cause: different causes ask for different action.

-- +goose Up

-- Repeats of one (token, operation, reason) within a minute are counted in one row, so that a worker
-- that loops on a refusal does not fill the disk.
CREATE TABLE fence.rejection (
    resource                nvarchar(255)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    rejection_id            uniqueidentifier NOT NULL,
    operation               nvarchar(16)     COLLATE Latin1_General_100_BIN2 NOT NULL,
    reason                  nvarchar(32)     COLLATE Latin1_General_100_BIN2 NOT NULL,
    generation              bigint           NOT NULL,
    owner                   nvarchar(255)    COLLATE Latin1_General_100_BIN2 NOT NULL,
    occurrences             bigint           NOT NULL DEFAULT 1,
    first_at                datetime2(7)     NOT NULL,
    last_at                 datetime2(7)     NOT NULL,
    observed_generation     bigint,
    observed_owner          nvarchar(255)    COLLATE Latin1_General_100_BIN2,
    observed_lease_until    datetime2(7),
    observed_at             datetime2(7)     NOT NULL,
    PRIMARY KEY NONCLUSTERED (resource, rejection_id)
);

-- Finds the row to count in. It ends in first_at, which never changes.
CREATE INDEX rejection_token ON fence.rejection (resource, generation, owner, operation, reason, first_at);

-- What prune and the hourly view look for.
CREATE INDEX rejection_age ON fence.rejection (first_at);

-- +goose Down

DROP TABLE fence.rejection;
