-- Which installation the database is of, and how far it has come: files beside the
-- database say the same, so that a server notices an older or another database.

-- +goose Up
CREATE TABLE installation (
    only_row   INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    id         TEXT    NOT NULL,
    generation BIGINT  NOT NULL -- raised by every transaction that is durable
);
INSERT INTO installation (only_row, id, generation) VALUES (1, lower(hex(randomblob(16))), 0);

-- +goose Down
DROP TABLE installation;
