-- The address at which other servers reach the active server, '' for none, and its epoch.

-- +goose Up
ALTER TABLE installation ADD COLUMN server_address TEXT NOT NULL DEFAULT '';
ALTER TABLE installation ADD COLUMN server_epoch INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE installation DROP COLUMN server_epoch;
ALTER TABLE installation DROP COLUMN server_address;
