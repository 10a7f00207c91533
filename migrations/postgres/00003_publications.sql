-- Results, apart from the lease rows: a payload must not be copied by each renewal.

-- +goose Up

-- The current result of a resource.
CREATE TABLE fence.publication (
    resource        text COLLATE "C" NOT NULL PRIMARY KEY,
    revision        bigint      NOT NULL,
    generation      bigint      NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    content_type    text        NOT NULL,
    payload         text        NOT NULL,
    source_as_of    timestamptz,
    published_at    timestamptz NOT NULL,
    late_ms         bigint
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- One row for each accepted call that named itself, so that a repeated call gets its first answer.
CREATE TABLE fence.publication_key (
    resource        text COLLATE "C" NOT NULL,
    generation      bigint      NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    operation_key   text COLLATE "C" NOT NULL,
    fingerprint     bytea       NOT NULL,
    revision        bigint      NOT NULL,
    published_at    timestamptz NOT NULL,
    late_ms         bigint,
    PRIMARY KEY (resource, generation, owner, operation_key)
);

-- What prune looks for.
CREATE INDEX publication_key_age ON fence.publication_key (published_at);

-- Publishes that were accepted after their lease had run out: builds outlive the lease.
CREATE TABLE fence.late_publication (
    resource        text COLLATE "C" NOT NULL,
    revision        bigint      NOT NULL,
    generation      bigint      NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    late_ms         bigint      NOT NULL,
    published_at    timestamptz NOT NULL,
    PRIMARY KEY (resource, generation, revision)
);

CREATE INDEX late_publication_age ON fence.late_publication (published_at);

-- +goose Down

DROP TABLE fence.late_publication;
DROP TABLE fence.publication_key;
DROP TABLE fence.publication;
