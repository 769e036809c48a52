-- The network of a sandbox may be open to some destinations only.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN network_rules TEXT COLLATE "C" NOT NULL DEFAULT ''; -- JSON: the lists allow and deny

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN network_rules;
