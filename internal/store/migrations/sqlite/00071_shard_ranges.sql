-- PostgreSQL has the owners of the ranges of shards. A file of SQLite belongs to one server, with all shards.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
