-- The network of sandboxes, and what they have used in all.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN network_enabled SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN ports TEXT NOT NULL DEFAULT '[]'; -- JSON array
ALTER TABLE sandboxes ADD COLUMN usage_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN usage_running BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN usage_cpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN usage_memory BIGINT NOT NULL DEFAULT 0; -- byte-seconds
ALTER TABLE sandboxes ADD COLUMN usage_sent BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN usage_received BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN usage_box_cpu BIGINT NOT NULL DEFAULT 0; -- the part of usage_cpu that the present box used

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN usage_box_cpu;
ALTER TABLE sandboxes DROP COLUMN usage_received;
ALTER TABLE sandboxes DROP COLUMN usage_sent;
ALTER TABLE sandboxes DROP COLUMN usage_memory;
ALTER TABLE sandboxes DROP COLUMN usage_cpu;
ALTER TABLE sandboxes DROP COLUMN usage_running;
ALTER TABLE sandboxes DROP COLUMN usage_at;
ALTER TABLE sandboxes DROP COLUMN ports;
ALTER TABLE sandboxes DROP COLUMN network_enabled;
