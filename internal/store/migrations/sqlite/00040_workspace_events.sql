-- The workspace of each event, so that the events of all sandboxes of a workspace can be read in order.

-- +goose Up
ALTER TABLE events ADD COLUMN workspace_id TEXT NOT NULL DEFAULT '';
UPDATE events SET workspace_id = (SELECT workspace_id FROM sandboxes WHERE id = events.sandbox_id);
CREATE INDEX events_workspace ON events (workspace_id, seq, type, time); -- with the columns of all filters

-- +goose Down
DROP INDEX events_workspace;
ALTER TABLE events DROP COLUMN workspace_id;
