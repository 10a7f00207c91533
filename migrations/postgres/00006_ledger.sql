-- Which routines are deployed: the hash of the file that was applied, and the hash of the definition that
-- the server stored for it. They part when somebody changes a routine by hand.

-- +goose Up

CREATE TABLE fence.ledger (
    routine         text COLLATE "C" NOT NULL PRIMARY KEY,
    file            text        NOT NULL,
    file_hash       text        NOT NULL,
    definition_hash text        NOT NULL,
    applied_at      timestamptz NOT NULL,
    applied_by      text        NOT NULL
);

-- Readable by every role of ours, so that `verify` and `migrate status` need no right on a table. goose writes
-- times without a zone; fencectl migrates in UTC.
CREATE VIEW fence.deployment AS
SELECT 'routine' AS kind, g.routine AS name, g.file, g.file_hash, g.definition_hash, g.applied_at, g.applied_by
  FROM fence.ledger g
UNION ALL
SELECT 'migration', v.version_id::text, NULL, NULL, NULL, v.tstamp AT TIME ZONE 'UTC', NULL
  FROM fence.goose_db_version v
 WHERE v.is_applied AND v.version_id > 0;

-- +goose Down

DROP VIEW fence.deployment;
DROP TABLE fence.ledger;
