-- Credentials for container registries.

-- +goose Up
CREATE TABLE registries (
    id           TEXT     NOT NULL PRIMARY KEY,
    workspace_id TEXT     NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name         TEXT     NOT NULL,
    server       TEXT     NOT NULL, -- as it was written
    host         TEXT     NOT NULL, -- as references have it
    username     TEXT     NOT NULL,
    email        TEXT     NOT NULL,
    key_id       TEXT     NOT NULL, -- of the key that password is encrypted with
    password     BLOB     NOT NULL, -- AES-256-GCM, for this id
    enabled      SMALLINT NOT NULL,
    created_by   TEXT     NOT NULL,
    created_at   BIGINT   NOT NULL,
    updated_at   BIGINT   NOT NULL
);
CREATE UNIQUE INDEX registries_name ON registries (workspace_id, name);

-- +goose Down
DROP TABLE registries;
