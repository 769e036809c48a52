-- +goose Up

-- What was installed before the sandbox was made, as JSON arrays of strings.
ALTER TABLE sandboxes ADD COLUMN dependencies TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sandboxes ADD COLUMN packages TEXT NOT NULL DEFAULT '[]';

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN packages;
ALTER TABLE sandboxes DROP COLUMN dependencies;
