-- What the driver of a worker can do, as it said when it connected last; '' is not known.

-- +goose Up
ALTER TABLE workers ADD COLUMN features TEXT COLLATE "C" NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE workers DROP COLUMN features;
