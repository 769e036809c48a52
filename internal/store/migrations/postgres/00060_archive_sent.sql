-- The bytes that a workspace has sent to the object store of archived sandboxes since unused data was removed there.

-- +goose Up
ALTER TABLE workspaces ADD COLUMN archive_sent_bytes BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE workspaces DROP COLUMN archive_sent_bytes;
