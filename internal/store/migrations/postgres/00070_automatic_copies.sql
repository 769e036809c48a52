-- The automatic checkpoints whose copy in the object store is being made, or is there. A row outlives the row of its checkpoint, which the next
-- checkpoint replaces, until the copy of a later one is recorded: when the disk is lost before that, the sandbox goes on from this copy.

-- +goose Up
CREATE TABLE automatic_copies (
    checkpoint_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    image_digest TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX automatic_copies_sandbox ON automatic_copies (sandbox_id);

-- +goose Down
DROP TABLE automatic_copies;
