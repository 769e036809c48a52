-- Pause, timeouts, checkpoints and forks.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN idle_timeout BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN paused_timeout BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN execution_timeout BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN on_idle TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'; -- JSON object
ALTER TABLE sandboxes ADD COLUMN parent_id TEXT NOT NULL DEFAULT ''; -- of a fork
ALTER TABLE sandboxes ADD COLUMN saved TEXT NOT NULL DEFAULT ''; -- the checkpoint it is restored from
ALTER TABLE sandboxes ADD COLUMN paused_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN last_activity_at BIGINT NOT NULL DEFAULT 0;

-- The states a caller saved under a name. Their data is in files.
CREATE TABLE checkpoints (
    id         TEXT   NOT NULL PRIMARY KEY,
    sandbox_id TEXT   NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name       TEXT   NOT NULL,
    size_bytes BIGINT NOT NULL,
    created_by TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX checkpoints_name ON checkpoints (sandbox_id, name);

-- +goose Down
DROP TABLE checkpoints;
ALTER TABLE sandboxes DROP COLUMN last_activity_at;
ALTER TABLE sandboxes DROP COLUMN paused_at;
ALTER TABLE sandboxes DROP COLUMN saved;
ALTER TABLE sandboxes DROP COLUMN parent_id;
ALTER TABLE sandboxes DROP COLUMN metadata;
ALTER TABLE sandboxes DROP COLUMN description;
ALTER TABLE sandboxes DROP COLUMN on_idle;
ALTER TABLE sandboxes DROP COLUMN execution_timeout;
ALTER TABLE sandboxes DROP COLUMN paused_timeout;
ALTER TABLE sandboxes DROP COLUMN idle_timeout;
