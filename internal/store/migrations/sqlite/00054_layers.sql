-- A root filesystem may be a layer that lies over others.

-- +goose Up
ALTER TABLE images ADD COLUMN below TEXT NOT NULL DEFAULT ''; -- digests, the nearest first, with spaces between
ALTER TABLE snapshots ADD COLUMN is_layer BIGINT NOT NULL DEFAULT 0; -- its root filesystem lies over base_digest

-- +goose Down
ALTER TABLE snapshots DROP COLUMN is_layer;
ALTER TABLE images DROP COLUMN below;
