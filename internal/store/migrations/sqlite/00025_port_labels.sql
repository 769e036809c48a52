-- Published ports have labels of their own, and say who may use them; and what the
-- management routes on a sandbox's URL ask for.

-- +goose Up
-- The ports were numbers. Those of sandboxes that live get labels of 80 random bits here.
UPDATE sandboxes SET ports = (
    SELECT json_group_array(json_object('port', value, 'label', 'p' || value || '-' || lower(hex(randomblob(10))),
        'access', 'public', 'labeled_at', strftime('%Y-%m-%dT%H:%M:%SZ', 'now')))
    FROM json_each(sandboxes.ports)
) WHERE ports <> '[]';
ALTER TABLE sandboxes ADD COLUMN url_access TEXT NOT NULL DEFAULT ''; -- '' is open
ALTER TABLE workspaces ADD COLUMN url_access TEXT NOT NULL DEFAULT ''; -- '' is the server's

-- +goose Down
ALTER TABLE workspaces DROP COLUMN url_access;
ALTER TABLE sandboxes DROP COLUMN url_access;
UPDATE sandboxes SET ports = (SELECT json_group_array(json_extract(value, '$.port')) FROM json_each(sandboxes.ports)) WHERE ports <> '[]';
