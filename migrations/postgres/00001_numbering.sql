-- The two rows that keep generations from repeating. They outlive every migration: `migrate down`
-- leaves them in place, so that numbering goes on where it stood (docs/semantics.md#generations).

-- +goose Up

-- The highest number that was ever given out to a row that no longer exists, or that an operator named.
CREATE TABLE IF NOT EXISTS fence.floor (
    only_row    boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
    at_least    bigint  NOT NULL DEFAULT 0 CHECK (at_least >= 0)
);

-- Which history of the database this is. A promoted standby and a restored backup write another one:
-- the first grant there finds system_identifier or timeline different and advances epoch.
CREATE TABLE IF NOT EXISTS fence.epoch (
    only_row            boolean NOT NULL DEFAULT true PRIMARY KEY CHECK (only_row),
    epoch               bigint  NOT NULL DEFAULT 1 CHECK (epoch >= 1),
    system_identifier   bigint,
    timeline            bigint
);

INSERT INTO fence.floor (only_row) VALUES (true) ON CONFLICT (only_row) DO NOTHING;
INSERT INTO fence.epoch (only_row) VALUES (true) ON CONFLICT (only_row) DO NOTHING;

-- +goose Down

-- Nothing: a floor or an epoch that is forgotten lets a number be given out twice.
SELECT 1;
