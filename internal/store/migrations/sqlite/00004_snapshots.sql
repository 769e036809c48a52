-- Snapshots. Their files are images in the image store, found by digest.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT ''; -- what it was made from
CREATE INDEX sandboxes_snapshot ON sandboxes (snapshot_id) WHERE snapshot_id <> '';

CREATE TABLE snapshots (
    id           TEXT   NOT NULL PRIMARY KEY,
    workspace_id TEXT   NOT NULL REFERENCES workspaces (id),
    state        TEXT   NOT NULL, -- creating, ready or deleted
    name         TEXT   NOT NULL,
    tag          TEXT   NOT NULL, -- '' for none; of one that is being created the one it will get
    description  TEXT   NOT NULL,
    message      TEXT   NOT NULL,
    metadata     TEXT   NOT NULL, -- JSON object
    parent_id    TEXT   NOT NULL,
    sandbox_id   TEXT   NOT NULL,
    image        TEXT   NOT NULL,
    base_digest  TEXT   NOT NULL DEFAULT '',
    digest       TEXT   NOT NULL DEFAULT '',
    size_bytes   BIGINT NOT NULL DEFAULT 0,
    layer_bytes  BIGINT NOT NULL DEFAULT 0,
    file_count   BIGINT NOT NULL DEFAULT 0,
    public       BIGINT NOT NULL DEFAULT 0,
    env          TEXT   NOT NULL, -- JSON object; its values are secrets
    content_hash TEXT   NOT NULL,
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    deleted_at   BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX snapshots_tag ON snapshots (workspace_id, name, tag) WHERE state = 'ready' AND tag <> '';
CREATE INDEX snapshots_page ON snapshots (workspace_id, created_at, id) WHERE state = 'ready';
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, created_at) WHERE sandbox_id <> '';
CREATE INDEX snapshots_content ON snapshots (workspace_id, content_hash) WHERE state = 'ready' AND content_hash <> '';
CREATE INDEX snapshots_public ON snapshots (created_at, id) WHERE state = 'ready' AND public = 1;

-- +goose Down
DROP TABLE snapshots;
DROP INDEX sandboxes_snapshot;
ALTER TABLE sandboxes DROP COLUMN snapshot_id;
