-- Operations that have been let in and whose record is not in the audit log yet, what
-- is left of a server that was killed gets its record when the next one starts; and
-- whether a session's tokens were used.

-- +goose Up
CREATE TABLE audit_intents (
    id     TEXT NOT NULL PRIMARY KEY,
    record TEXT NOT NULL -- JSON; what was known before the operation did anything
);
-- As long as the newest tokens were not, the refresh token before works for a moment.
ALTER TABLE sessions ADD COLUMN used SMALLINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE sessions DROP COLUMN used;
DROP TABLE audit_intents;
