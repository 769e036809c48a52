-- The disk of builds under way counts for the quota of their workspace.

-- +goose Up
DROP INDEX builds_quota;
CREATE INDEX builds_quota ON builds (workspace_id, memory_bytes, cpu_milli, disk_bytes);

-- +goose Down
DROP INDEX builds_quota;
CREATE INDEX builds_quota ON builds (workspace_id, memory_bytes, cpu_milli);
