-- Which routines are deployed: the hash of the file that was applied, and the hash of the definition that
-- the server stored for it. They part when somebody changes a routine by hand.

-- +goose Up

CREATE TABLE fence.ledger (
    routine         nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
    [file]          nvarchar(255) NOT NULL,
    file_hash       nvarchar(64)  NOT NULL,
    definition_hash nvarchar(64)  NOT NULL,
    applied_at      datetime2(7)  NOT NULL,
    applied_by      nvarchar(128) NOT NULL
);

-- Readable by every role of ours, so that `verify` and `migrate status` need no right on a table.
CREATE VIEW fence.deployment AS
SELECT N'routine' AS kind, g.routine AS name, g.[file], g.file_hash, g.definition_hash, g.applied_at, g.applied_by
  FROM fence.ledger g
UNION ALL
SELECT N'migration', CAST(v.version_id AS nvarchar(20)), NULL, NULL, NULL, CAST(v.tstamp AS datetime2(7)), NULL
  FROM fence.goose_db_version v
 WHERE v.is_applied = 1 AND v.version_id > 0;

-- +goose Down

DROP VIEW fence.deployment;
DROP TABLE fence.ledger;
