-- Variables of sandboxes and snapshots, and the hashes of requests, which are made of them
-- too, are encrypted: "sealed:", the id of a key, a colon, and base64. Those of sandboxes that have
-- ended are gone.

-- +goose Up
UPDATE sandboxes SET env = '{}' WHERE state IN ('destroyed', 'failed');
-- What a server must do with a database after its migrations, until it is done.
CREATE TABLE upgrades (
    name TEXT NOT NULL PRIMARY KEY
);
INSERT INTO upgrades (name) VALUES ('seal-variables');

-- +goose Down
DROP TABLE upgrades;
