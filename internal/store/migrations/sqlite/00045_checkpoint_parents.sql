-- The checkpoint that a sandbox was in before each of its checkpoints.

-- +goose Up
ALTER TABLE checkpoints ADD COLUMN parent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints_begun ADD COLUMN copy_of TEXT NOT NULL DEFAULT ''; -- a checkpoint of the sandbox that it is a copy of
ALTER TABLE sandboxes ADD COLUMN checkpoint_id TEXT NOT NULL DEFAULT ''; -- the named checkpoint that was made or restored last

DROP TRIGGER begun_saved;
-- +goose StatementBegin
CREATE TRIGGER begun_saved AFTER UPDATE OF saved ON sandboxes WHEN NEW.saved <> '' AND OLD.saved <> NEW.saved BEGIN
    UPDATE sandboxes SET checkpoint_id = (
        SELECT CASE c.name WHEN '' THEN c.parent_id ELSE c.id END
        FROM checkpoints_begun AS b JOIN checkpoints AS c ON c.id = b.copy_of WHERE b.id = NEW.saved)
    WHERE id = NEW.id AND EXISTS (
        SELECT 1 FROM checkpoints_begun AS b JOIN checkpoints AS c ON c.id = b.copy_of WHERE b.id = NEW.saved);
    DELETE FROM checkpoints_begun WHERE id = NEW.saved;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER parent_deleted AFTER DELETE ON checkpoints WHEN OLD.name <> '' BEGIN
    UPDATE checkpoints SET parent_id = OLD.parent_id WHERE sandbox_id = OLD.sandbox_id AND parent_id = OLD.id;
    UPDATE sandboxes SET checkpoint_id = OLD.parent_id WHERE id = OLD.sandbox_id AND checkpoint_id = OLD.id;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER parent_deleted;
DROP TRIGGER begun_saved;
-- +goose StatementBegin
CREATE TRIGGER begun_saved AFTER UPDATE OF saved ON sandboxes WHEN NEW.saved <> '' AND OLD.saved <> NEW.saved BEGIN
    DELETE FROM checkpoints_begun WHERE id = NEW.saved;
END;
-- +goose StatementEnd
ALTER TABLE sandboxes DROP COLUMN checkpoint_id;
ALTER TABLE checkpoints_begun DROP COLUMN copy_of;
ALTER TABLE checkpoints DROP COLUMN parent_id;
