-- The policy of a workspace for code: off, warn or block, and the rules that count, separated by spaces; '' is all.

-- +goose Up
ALTER TABLE workspaces ADD COLUMN code_scan TEXT NOT NULL DEFAULT 'off' CHECK (code_scan IN ('off', 'warn', 'block'));
ALTER TABLE workspaces ADD COLUMN code_scan_rules TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE workspaces DROP COLUMN code_scan_rules;
ALTER TABLE workspaces DROP COLUMN code_scan;
