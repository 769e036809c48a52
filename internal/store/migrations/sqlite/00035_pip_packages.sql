-- Python packages, and the lists of packages under the names that the API has for them.

-- +goose Up
ALTER TABLE sandboxes RENAME COLUMN dependencies TO apt_packages;
ALTER TABLE sandboxes RENAME COLUMN packages TO npm_packages;
ALTER TABLE sandboxes ADD COLUMN pip_packages TEXT NOT NULL DEFAULT '[]';

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN pip_packages;
ALTER TABLE sandboxes RENAME COLUMN npm_packages TO packages;
ALTER TABLE sandboxes RENAME COLUMN apt_packages TO dependencies;
