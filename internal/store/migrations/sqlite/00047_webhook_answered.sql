-- Until a delivery to its address has arrived, a webhook has few of the places for attempts.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN answered BIGINT NOT NULL DEFAULT 0; -- a delivery to the present address has arrived
UPDATE webhooks SET answered = 1 WHERE id IN (SELECT webhook_id FROM webhook_deliveries WHERE state = 'delivered');

-- +goose Down
ALTER TABLE webhooks DROP COLUMN answered;
