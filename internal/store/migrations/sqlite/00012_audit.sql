-- The audit log: who did what, each record chained to the one before.

-- +goose Up
-- What is searched for is read out of the record, so that it cannot say anything else.
CREATE TABLE audit_records (
    seq          INTEGER PRIMARY KEY, -- without a gap
    record       TEXT    NOT NULL,    -- JSON; the bytes that are hashed
    hash         TEXT    NOT NULL,    -- SHA-256 over the hash before and the record, in hexadecimal
    time         TEXT GENERATED ALWAYS AS (json_extract(record, '$.time')) VIRTUAL,
    workspace_id TEXT GENERATED ALWAYS AS (coalesce(json_extract(record, '$.workspace_id'), '')) VIRTUAL,
    user_id      TEXT GENERATED ALWAYS AS (coalesce(json_extract(record, '$.user_id'), '')) VIRTUAL,
    object_id    TEXT GENERATED ALWAYS AS (coalesce(json_extract(record, '$.object_id'), '')) VIRTUAL,
    object_name  TEXT GENERATED ALWAYS AS (coalesce(json_extract(record, '$.object_name'), '')) VIRTUAL,
    action       TEXT GENERATED ALWAYS AS (json_extract(record, '$.action')) VIRTUAL,
    outcome      TEXT GENERATED ALWAYS AS (json_extract(record, '$.outcome')) VIRTUAL
);
CREATE INDEX audit_records_workspace ON audit_records (workspace_id, seq);
CREATE INDEX audit_records_user ON audit_records (user_id, seq);
CREATE INDEX audit_records_object ON audit_records (object_id, seq);
CREATE INDEX audit_records_time ON audit_records (time);

-- One row: where the records begin and end.
CREATE TABLE audit_chain (
    id          SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
    anchor_seq  BIGINT   NOT NULL, -- the newest record that was cut off
    anchor_hash TEXT     NOT NULL,
    head_seq    BIGINT   NOT NULL, -- the newest record
    head_hash   TEXT     NOT NULL,
    bytes       BIGINT   NOT NULL  -- of the records that are kept
);

-- +goose Down
DROP TABLE audit_chain;
DROP TABLE audit_records;
