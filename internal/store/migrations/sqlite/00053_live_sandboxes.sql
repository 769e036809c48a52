-- A list of live sandboxes does not read the rows of sandboxes that have ended.

-- +goose Up
CREATE INDEX sandboxes_live_page ON sandboxes (workspace_id, created_at, id) WHERE state NOT IN ('destroyed', 'failed');

-- +goose Down
DROP INDEX sandboxes_live_page;
