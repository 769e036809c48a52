-- Automatic checkpoints. The row of a sandbox's automatic checkpoint has the name ''.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN checkpoint_interval BIGINT NOT NULL DEFAULT 0; -- nanoseconds; 0 is off
ALTER TABLE sandboxes ADD COLUMN last_checkpoint_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN restores BIGINT NOT NULL DEFAULT 0; -- after its sandbox was lost

-- +goose Down
DELETE FROM checkpoints WHERE name = '';
ALTER TABLE checkpoints DROP COLUMN restores;
ALTER TABLE sandboxes DROP COLUMN last_checkpoint_at;
ALTER TABLE sandboxes DROP COLUMN checkpoint_interval;
