-- The owners of the ranges of shards. A server raises the epoch of a range when it becomes its owner, so that the owner before
-- finds out, also if the new owner has ended meanwhile.

-- +goose Up
CREATE TABLE shard_ranges (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number BETWEEN 0 AND 15),
    epoch BIGINT NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    taken_at BIGINT NOT NULL
);
INSERT INTO shard_ranges (number, epoch, owner, taken_at) SELECT n, 0, '', 0 FROM generate_series(0, 15) n;

-- +goose Down
DROP TABLE shard_ranges;
