-- Saved states that are being made and that no row has yet. Without a record of them, the
-- next server would take what a killed one left for a state that the database lost.

-- +goose Up
CREATE TABLE checkpoints_begun (
    id         TEXT   NOT NULL PRIMARY KEY,
    sandbox_id TEXT   NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    begun_at   BIGINT NOT NULL
);
CREATE INDEX checkpoints_begun_sandbox ON checkpoints_begun (sandbox_id);

-- +goose StatementBegin
CREATE TRIGGER begun_checkpoint AFTER INSERT ON checkpoints BEGIN
    DELETE FROM checkpoints_begun WHERE id = NEW.id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER begun_saved AFTER UPDATE OF saved ON sandboxes WHEN NEW.saved <> '' AND OLD.saved <> NEW.saved BEGIN
    DELETE FROM checkpoints_begun WHERE id = NEW.saved;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER begun_checkpoint;
DROP TRIGGER begun_saved;
DROP TABLE checkpoints_begun;
