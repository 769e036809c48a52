-- How often the next server may begin the start of a sandbox again that its server did not finish.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN starts_left INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN starts_left;
