-- +goose Up
ALTER TABLE sandboxes ADD COLUMN ttl_from BIGINT NOT NULL DEFAULT 0; -- when the ttl was last changed, from which it counts; 0 if never

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN ttl_from;
