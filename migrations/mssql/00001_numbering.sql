-- The two rows that keep generations from repeating. They outlive every migration: `migrate down`
-- leaves them in place, so that numbering goes on where it stood (docs/semantics.md#generations).

-- +goose Up

-- The highest number that was ever given out to a row that no longer exists, or that an operator named.
IF OBJECT_ID(N'fence.floor') IS NULL
    CREATE TABLE fence.floor (
        only_row    bit     NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
        at_least    bigint  NOT NULL DEFAULT 0 CHECK (at_least >= 0)
    );

-- Which history of the database this is. Nothing advances it by itself on this engine: recovery_fork_guid
-- tells `fencectl doctor` that the database was restored, and then `raise_floor` is demanded.
IF OBJECT_ID(N'fence.epoch') IS NULL
    CREATE TABLE fence.epoch (
        only_row            bit              NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
        epoch               bigint           NOT NULL DEFAULT 1 CHECK (epoch >= 1),
        recovery_fork_guid  uniqueidentifier
    );

IF NOT EXISTS (SELECT 1 FROM fence.floor) INSERT INTO fence.floor (only_row) VALUES (1);
IF NOT EXISTS (SELECT 1 FROM fence.epoch) INSERT INTO fence.epoch (only_row) VALUES (1);

-- +goose Down

-- Nothing: a floor or an epoch that is forgotten lets a number be given out twice.
SELECT 1;
