-- The image catalogues of workspaces.

-- +goose Up
CREATE TABLE catalogue_images (
    id             TEXT     NOT NULL PRIMARY KEY,
    workspace_id   TEXT     NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name           TEXT     NOT NULL,
    image          TEXT     NOT NULL,
    tag            TEXT     NOT NULL, -- '' for an image by digest
    description    TEXT     NOT NULL,
    enabled        SMALLINT NOT NULL,
    is_default     SMALLINT NOT NULL,
    memory_bytes   BIGINT   NOT NULL,
    readiness_port INTEGER  NOT NULL, -- 0 for none
    ttl            BIGINT   NOT NULL, -- nanoseconds, 0 for none
    registry_id    TEXT     NOT NULL, -- '' for any; it may be of one that was deleted
    created_by     TEXT     NOT NULL,
    created_at     BIGINT   NOT NULL,
    updated_at     BIGINT   NOT NULL
);
CREATE UNIQUE INDEX catalogue_images_name ON catalogue_images (workspace_id, name);
CREATE UNIQUE INDEX catalogue_images_default ON catalogue_images (workspace_id) WHERE is_default = 1;

-- The built-in images of which no sandbox may be made.
CREATE TABLE disabled_images (
    image_id    TEXT   NOT NULL PRIMARY KEY,
    disabled_by TEXT   NOT NULL,
    disabled_at BIGINT NOT NULL
);

-- What a sandbox was made from, and with which credential it was to be pulled; '' when unknown.
ALTER TABLE sandboxes ADD COLUMN image_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN registry_id TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN registry_id;
ALTER TABLE sandboxes DROP COLUMN image_id;
DROP TABLE disabled_images;
DROP TABLE catalogue_images;
