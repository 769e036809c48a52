-- PostgreSQL has the servers of the ranges of shards.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
