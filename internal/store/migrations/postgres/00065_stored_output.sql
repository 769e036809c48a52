-- The installation that has stored the output of an ended execution in the object store; '' is not stored, and '-' that there is nothing to store.

-- +goose Up
ALTER TABLE executions ADD COLUMN stored_by TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX executions_stored_stdout ON executions (stdout) WHERE stored_by <> '';
CREATE INDEX executions_stored_stderr ON executions (stderr) WHERE stored_by <> '';

-- +goose Down
DROP INDEX executions_stored_stderr;
DROP INDEX executions_stored_stdout;
ALTER TABLE executions DROP COLUMN stored_by;
