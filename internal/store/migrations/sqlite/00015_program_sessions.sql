-- +goose Up

-- How long a refresh token of the session works, and when the session ends
-- whatever is done; 0 is never. A program on somebody's machine is not used
-- every half an hour, as a page is.
ALTER TABLE sessions ADD COLUMN refresh_time INTEGER NOT NULL DEFAULT 1800000000000;
ALTER TABLE sessions ADD COLUMN ends_at INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sessions DROP COLUMN ends_at;
ALTER TABLE sessions DROP COLUMN refresh_time;
