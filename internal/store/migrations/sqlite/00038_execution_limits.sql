-- The limit that an execution exceeded; '' for none.

-- +goose Up
ALTER TABLE executions ADD COLUMN limit_exceeded TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE executions DROP COLUMN limit_exceeded;
