-- The index of the image directory. Each image also has a descriptor in that directory, from which
-- its row can be made again: see package internal/image/index.

-- +goose Up
CREATE TABLE images (
    key             TEXT   NOT NULL PRIMARY KEY, -- of the owner, the reference and the content
    position        BIGINT NOT NULL,             -- the order of the builds
    name            TEXT   NOT NULL,
    tag             TEXT   NOT NULL,
    is_current      BIGINT NOT NULL, -- the reference means this image
    owner           TEXT   NOT NULL, -- the only workspace that may use it; '' for all
    digest          TEXT   NOT NULL, -- of the root filesystem
    size_bytes      BIGINT NOT NULL,
    file_count      BIGINT NOT NULL,
    file_time       BIGINT NOT NULL,
    mark            TEXT   NOT NULL, -- in hexadecimal
    manifest        TEXT   NOT NULL, -- of the OCI image: digest, bytes and type
    manifest_bytes  BIGINT NOT NULL,
    manifest_type   TEXT   NOT NULL,
    recipe_hash     TEXT   NOT NULL,
    description     TEXT   NOT NULL,
    config          TEXT   NOT NULL, -- JSON
    memory_bytes    BIGINT NOT NULL,
    readiness_port  BIGINT NOT NULL,
    ttl             BIGINT NOT NULL, -- nanoseconds
    pull_reference  TEXT   NOT NULL, -- '' for an image that was not pulled
    pull_asked      TEXT   NOT NULL, -- the digest that the reference named
    pull_checked_at BIGINT NOT NULL,
    is_private      BIGINT NOT NULL, -- every pull needed a login
    committed       TEXT   NOT NULL, -- JSON: base and layer; '' for an image that was not committed
    cache_key       TEXT   NOT NULL,
    packages        TEXT   NOT NULL, -- JSON
    lost_at         BIGINT NOT NULL, -- when no database knew it; 0 for never
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX images_position ON images (position);

-- The workspaces that have used an image for all workspaces, which counts for each of them.
CREATE TABLE image_users (
    image_key    TEXT   NOT NULL REFERENCES images (key) ON DELETE CASCADE,
    workspace_id TEXT   NOT NULL,
    used_at      BIGINT NOT NULL,
    PRIMARY KEY (image_key, workspace_id)
);

-- The logins that gave workspaces a private image.
CREATE TABLE image_readers (
    image_key TEXT   NOT NULL REFERENCES images (key) ON DELETE CASCADE,
    proof     TEXT   NOT NULL, -- workspace, credential, and the time of its last change
    proven_at BIGINT NOT NULL,
    PRIMARY KEY (image_key, proof)
);

-- +goose Down
DROP TABLE image_readers;
DROP TABLE image_users;
DROP TABLE images;
