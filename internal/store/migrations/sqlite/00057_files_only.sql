-- Whether the state that a sandbox is paused with has its files alone, without memory.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN files_only SMALLINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN files_only;
