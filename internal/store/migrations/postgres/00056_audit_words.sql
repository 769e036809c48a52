-- The words of the records of the audit log, for searches. Records from before have none.

-- +goose Up
CREATE TABLE audit_words (
    word TEXT COLLATE "C" NOT NULL, -- in lower case
    seq  BIGINT NOT NULL, -- of a record
    PRIMARY KEY (word, seq)
);

-- +goose Down
DROP TABLE audit_words;
