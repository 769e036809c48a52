-- PostgreSQL has the creates that workspaces have left in a minute, for several servers. A file of SQLite belongs to one server, which has them in memory.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
