-- The name of a sandbox is free for another as soon as its end is decided: so one
-- can be replaced, and its place in the quota taken, in one transaction.

-- +goose Up
DROP INDEX sandboxes_live_name;
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name)
    WHERE state NOT IN ('destroyed', 'failed', 'destroying');

-- +goose Down
DROP INDEX sandboxes_live_name;
-- Where another has the name already, the end of the one before it is final.
UPDATE sandboxes SET state = 'destroyed', ended_at = updated_at WHERE state = 'destroying' AND EXISTS
    (SELECT 1 FROM sandboxes o WHERE o.workspace_id = sandboxes.workspace_id AND o.name = sandboxes.name AND o.id > sandboxes.id
        AND o.state NOT IN ('destroyed', 'failed'));
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name)
    WHERE state NOT IN ('destroyed', 'failed');
