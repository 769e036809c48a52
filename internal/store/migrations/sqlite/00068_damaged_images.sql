-- When the copy of a file in the object store was found damaged or incomplete; a server that has the file sends it again.

-- +goose Up
ALTER TABLE stored_files ADD COLUMN damaged_at INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE stored_files DROP COLUMN damaged_at;
