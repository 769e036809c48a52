-- Paused sandboxes whose memory cannot be brought back start anew from their
-- files, which are a root filesystem of their own then.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN memory_lost TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN image_digest TEXT NOT NULL DEFAULT '';
-- Until now a sandbox kept the root filesystem that it was made from.
UPDATE checkpoints SET image_digest = coalesce((SELECT s.image_digest FROM sandboxes s WHERE s.id = checkpoints.sandbox_id), '');

-- +goose Down
ALTER TABLE checkpoints DROP COLUMN image_digest;
ALTER TABLE sandboxes DROP COLUMN memory_lost;
