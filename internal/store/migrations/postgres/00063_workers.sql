-- The workers of the server, which run its sandboxes on other machines. A worker that was removed stays, so that it does not come back.

-- +goose Up
CREATE TABLE workers (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    key_digest TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    memory_bytes BIGINT NOT NULL,
    cores BIGINT NOT NULL,
    joined_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE workers;
