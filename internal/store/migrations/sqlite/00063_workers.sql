-- The workers of the server, which run its sandboxes on other machines. A worker that was removed stays, so that it does not come back.

-- +goose Up
CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    key_digest TEXT NOT NULL,
    state TEXT NOT NULL,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    memory_bytes INTEGER NOT NULL,
    cores INTEGER NOT NULL,
    joined_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;

-- +goose Down
DROP TABLE workers;
