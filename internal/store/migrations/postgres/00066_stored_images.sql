-- The files of images in the object store: root filesystems, and blobs of OCI images. The database has data of the small blobs itself.
-- A file that no image needs is released, and stays for a while.

-- +goose Up
CREATE TABLE stored_files (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    content TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    workspace_id TEXT COLLATE "C" NOT NULL,
    stored_by TEXT COLLATE "C" NOT NULL,
    data BYTEA,
    released_at BIGINT NOT NULL DEFAULT 0
);

-- +goose Down
DROP TABLE stored_files;
