-- The servers of the ranges of shards, for the servers that forward requests to them. Standbys of earlier versions read the address of the server of
-- the first range in the table installation.

-- +goose Up
ALTER TABLE shard_ranges ADD COLUMN address TEXT COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN server_epoch BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE shard_ranges DROP COLUMN address, DROP COLUMN server_epoch;
