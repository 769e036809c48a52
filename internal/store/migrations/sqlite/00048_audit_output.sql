-- Whether the audit log has the outputs of the workspace's commands.

-- +goose Up
ALTER TABLE workspaces ADD COLUMN audit_output BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE workspaces DROP COLUMN audit_output;
