-- Quotas of workspaces.

-- +goose Up
-- What an administrator has set; the server's own quota counts for the rest.
CREATE TABLE quotas (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name         TEXT   NOT NULL,
    value        BIGINT NOT NULL, -- 0 for no limit
    PRIMARY KEY (workspace_id, name)
);

ALTER TABLE sandboxes ADD COLUMN saved_bytes BIGINT NOT NULL DEFAULT 0; -- what it takes while it is paused; 0 when not known

-- What the quota of a workspace limits is summed up without looking at the rows.
CREATE INDEX sandboxes_quota ON sandboxes (workspace_id, state, memory_bytes, cpu_milli, disk_bytes, saved_bytes)
    WHERE state NOT IN ('destroyed', 'failed');

-- +goose Down
DROP INDEX sandboxes_quota;
ALTER TABLE sandboxes DROP COLUMN saved_bytes;
DROP TABLE quotas;
