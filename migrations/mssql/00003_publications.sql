-- Results, apart from the lease rows: a payload must not be copied by each renewal.

-- +goose Up

-- The current result of a resource.
CREATE TABLE fence.publication (
    resource        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    revision        bigint        NOT NULL,
    generation      bigint        NOT NULL,
    owner           nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    content_type    nvarchar(255) NOT NULL,
    payload         nvarchar(max) NOT NULL,
    source_as_of    datetime2(7),
    published_at    datetime2(7)  NOT NULL,
    late_ms         bigint
);

-- One row for each accepted call that named itself, so that a repeated call gets its first answer.
CREATE TABLE fence.publication_key (
    resource        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    generation      bigint        NOT NULL,
    owner           nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    operation_key   nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    fingerprint     varbinary(32) NOT NULL,
    revision        bigint        NOT NULL,
    published_at    datetime2(7)  NOT NULL,
    late_ms         bigint,
    PRIMARY KEY NONCLUSTERED (resource, generation, owner, operation_key)
);

-- What prune looks for.
CREATE INDEX publication_key_age ON fence.publication_key (published_at);

-- Publishes that were accepted after their lease had run out: builds outlive the lease.
CREATE TABLE fence.late_publication (
    resource        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    revision        bigint        NOT NULL,
    generation      bigint        NOT NULL,
    owner           nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    late_ms         bigint        NOT NULL,
    published_at    datetime2(7)  NOT NULL,
    PRIMARY KEY NONCLUSTERED (resource, generation, revision)
);

CREATE INDEX late_publication_age ON fence.late_publication (published_at);

-- +goose Down

DROP TABLE fence.late_publication;
DROP TABLE fence.publication_key;
DROP TABLE fence.publication;
