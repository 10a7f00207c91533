-- Identity and time of a lease, in two rows, so that a fenced transaction (which holds the first) never
-- stands in the way of its own renewal (which touches the second only).

-- +goose Up

-- Who: locked by check and publish until their transaction ends.
CREATE TABLE fence.lease (
    resource            nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    generation          bigint        NOT NULL,
    owner               nvarchar(255) COLLATE Latin1_General_100_BIN2,
    acquired_at         datetime2(7)  NOT NULL,
    released_at         datetime2(7),
    request_id          uniqueidentifier,
    epoch               bigint        NOT NULL DEFAULT 1,
    floor               bigint        NOT NULL DEFAULT 0,
    accepted_generation bigint        NOT NULL DEFAULT 0,
    revision            bigint        NOT NULL DEFAULT 0
);

-- Until when: all that renew reads and writes. No index on a column that a renewal changes.
CREATE TABLE fence.lease_term (
    resource    nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    generation  bigint        NOT NULL,
    owner       nvarchar(255) COLLATE Latin1_General_100_BIN2,
    attributes  nvarchar(max),
    ttl_ms      bigint        NOT NULL,
    lease_until datetime2(7)  NOT NULL,
    released_at datetime2(7),
    renewed_at  datetime2(7)  NOT NULL,
    renewals    bigint        NOT NULL DEFAULT 0
);

-- What an operator did to a lease, and the answer that a repeated call gets.
CREATE TABLE fence.intervention (
    resource        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    generation      bigint        NOT NULL,
    operation       nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    performed_by    nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    note            nvarchar(max),
    performed_at    datetime2(7)  NOT NULL,
    previous_owner  nvarchar(255) COLLATE Latin1_General_100_BIN2,
    result          bigint        NOT NULL,
    PRIMARY KEY NONCLUSTERED (resource, generation, operation)
);

-- +goose Down

-- The rows know the last numbers; the floor must know them before the rows go.
UPDATE fence.floor
   SET at_least = (SELECT max(n.number)
                     FROM (SELECT at_least AS number FROM fence.floor
                           UNION ALL SELECT generation FROM fence.lease
                           UNION ALL SELECT floor FROM fence.lease) n);

DROP TABLE fence.intervention;
DROP TABLE fence.lease_term;
DROP TABLE fence.lease;
