-- Public keys by which users log in over SSH.

-- +goose Up
CREATE TABLE ssh_keys (
    id           TEXT   NOT NULL PRIMARY KEY,
    user_id      TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    workspace_id TEXT   REFERENCES workspaces (id) ON DELETE CASCADE, -- NULL: all workspaces of the user
    name         TEXT   NOT NULL,
    public_key   TEXT   NOT NULL, -- type and base64, as in authorized_keys
    fingerprint  TEXT   NOT NULL UNIQUE, -- SHA256:…; a key belongs to one user
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0,
    expires_at   BIGINT NOT NULL DEFAULT 0 -- 0: never
);
CREATE INDEX ssh_keys_user ON ssh_keys (user_id, created_at);
CREATE INDEX ssh_keys_workspace ON ssh_keys (workspace_id) WHERE workspace_id IS NOT NULL;

-- +goose Down
DROP TABLE ssh_keys;
