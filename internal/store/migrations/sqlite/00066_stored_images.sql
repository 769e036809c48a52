-- The files of images in the object store: root filesystems, and blobs of OCI images. The database has data of the small blobs itself.
-- A file that no image needs is released, and stays for a while.

-- +goose Up
CREATE TABLE stored_files (
    digest TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    workspace_id TEXT NOT NULL,
    stored_by TEXT NOT NULL,
    data BLOB,
    released_at INTEGER NOT NULL DEFAULT 0
) STRICT;

-- +goose Down
DROP TABLE stored_files;
