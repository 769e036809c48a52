-- What all workspaces together are promised is bounded, builds included.

-- +goose Up
ALTER TABLE builds ADD COLUMN disk_bytes BIGINT NOT NULL DEFAULT 0; -- what each box of it is limited to

-- +goose Down
ALTER TABLE builds DROP COLUMN disk_bytes;
