-- Times are Unix nanoseconds, 0 for "never"; durations are nanoseconds.

-- +goose Up
CREATE TABLE users (
    id         TEXT   NOT NULL PRIMARY KEY,
    name       TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE workspaces (
    id         TEXT     NOT NULL PRIMARY KEY,
    name       TEXT     NOT NULL,
    is_default SMALLINT NOT NULL DEFAULT 0,
    created_by TEXT     NOT NULL REFERENCES users (id),
    created_at BIGINT   NOT NULL
);
CREATE UNIQUE INDEX workspaces_default ON workspaces (is_default) WHERE is_default = 1;

CREATE TABLE members (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id      TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role         TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE TABLE tokens (
    id           TEXT   NOT NULL PRIMARY KEY,
    hash         TEXT   NOT NULL UNIQUE, -- SHA-256 in hexadecimal
    workspace_id TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id      TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    description  TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0,
    expires_at   BIGINT NOT NULL DEFAULT 0,
    revoked_at   BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX tokens_owner ON tokens (workspace_id, user_id, created_at);

CREATE TABLE sandboxes (
    id             TEXT    NOT NULL PRIMARY KEY,
    workspace_id   TEXT    NOT NULL REFERENCES workspaces (id),
    name           TEXT    NOT NULL,
    host_label     TEXT    NOT NULL UNIQUE,
    state          TEXT    NOT NULL,
    cause_code     TEXT    NOT NULL DEFAULT '',
    cause_message  TEXT    NOT NULL DEFAULT '',
    image          TEXT    NOT NULL,
    image_digest   TEXT    NOT NULL DEFAULT '',
    env            TEXT    NOT NULL, -- JSON object; its values are secrets
    labels         TEXT    NOT NULL, -- JSON object; sandbox_labels is its index
    memory_bytes   BIGINT  NOT NULL,
    cpu_milli      BIGINT  NOT NULL,
    disk_bytes     BIGINT  NOT NULL,
    readiness_port INTEGER NOT NULL DEFAULT 0,
    ttl            BIGINT  NOT NULL DEFAULT 0,
    created_by     TEXT    NOT NULL,
    created_at     BIGINT  NOT NULL,
    updated_at     BIGINT  NOT NULL,
    started_at     BIGINT  NOT NULL DEFAULT 0,
    ended_at       BIGINT  NOT NULL DEFAULT 0,
    handle         BLOB,
    request_hash   TEXT    NOT NULL
);
-- One live sandbox per name. The condition also serves queries for what is live.
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name)
    WHERE state NOT IN ('destroyed', 'failed');
CREATE INDEX sandboxes_name ON sandboxes (workspace_id, name, created_at);
CREATE INDEX sandboxes_page ON sandboxes (workspace_id, created_at, id);
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at > 0;

CREATE TABLE sandbox_labels (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    label      TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (sandbox_id, label)
);

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    time       BIGINT  NOT NULL,
    type       TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    data       TEXT    NOT NULL -- JSON object
);
CREATE INDEX events_sandbox ON events (sandbox_id, seq);

CREATE TABLE idempotency_keys (
    workspace_id    TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    idempotency_key TEXT   NOT NULL,
    sandbox_id      TEXT   NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    expires_at      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, idempotency_key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_sandbox ON idempotency_keys (sandbox_id);

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE events;
DROP TABLE sandbox_labels;
DROP TABLE sandboxes;
DROP TABLE tokens;
DROP TABLE members;
DROP TABLE workspaces;
DROP TABLE users;
