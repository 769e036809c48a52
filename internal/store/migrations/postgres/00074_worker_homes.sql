-- The range of shards that a worker belongs to: the server of the range has the worker. The workers that are there belong to all ranges in turn, so that
-- two, four or more servers have as many workers each. The other columns are for several active servers: since when the worker is connected, 0 if it
-- is not, its boxes, and the memory that is promised to them.

-- +goose Up
ALTER TABLE workers ADD COLUMN home BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN connected_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN boxes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN promised_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE workers SET home = (o.n & 1) * 8 + (o.n & 2) * 2 + (o.n & 4) / 2 + (o.n & 8) / 8
    FROM (SELECT id, row_number() OVER (ORDER BY joined_at, id) - 1 AS n FROM workers WHERE id LIKE 'worker-%') o WHERE o.id = workers.id;

-- +goose Down
ALTER TABLE workers DROP COLUMN promised_bytes;
ALTER TABLE workers DROP COLUMN boxes;
ALTER TABLE workers DROP COLUMN connected_at;
ALTER TABLE workers DROP COLUMN home;
