-- What builds take of the quota of their workspace while they are under way.

-- +goose Up
CREATE TABLE builds (
    id           TEXT   NOT NULL PRIMARY KEY,
    workspace_id TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    memory_bytes BIGINT NOT NULL, -- what each box of it is limited to
    cpu_milli    BIGINT NOT NULL
);
CREATE INDEX builds_quota ON builds (workspace_id, memory_bytes, cpu_milli);

-- +goose Down
DROP TABLE builds;
