-- The creates that a workspace with a limit of creates a minute has left, where several servers work at the same time: tokens there were at a time.
-- A single server has them in memory.

-- +goose Up
CREATE TABLE create_rates (
    workspace_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES workspaces (id) ON DELETE CASCADE,
    per_minute BIGINT NOT NULL,
    tokens DOUBLE PRECISION NOT NULL,
    at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE create_rates;
