-- The saved states of paused sandboxes in the object store. The state of a sandbox that went on or ended is released: it stays in the
-- object store, and counts, for a while.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN archived_at INTEGER NOT NULL DEFAULT 0;
CREATE TABLE archives (
    checkpoint_id TEXT NOT NULL PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    released_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX archives_workspace ON archives (workspace_id, released_at, size_bytes);
CREATE INDEX archives_sandbox ON archives (sandbox_id);

-- +goose Down
DROP TABLE archives;
ALTER TABLE sandboxes DROP COLUMN archived_at;
