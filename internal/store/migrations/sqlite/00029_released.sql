-- Saved states and root filesystems that rows had and gave up. Files of others that no
-- row knows are not taken for garbage: the database may be the wrong one.

-- +goose Up
CREATE TABLE released (
    name        TEXT   PRIMARY KEY, -- id of a checkpoint, or digest of a root filesystem
    released_at BIGINT NOT NULL     -- seconds since 1970
) WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER released_saved AFTER UPDATE OF saved ON sandboxes WHEN OLD.saved <> '' AND OLD.saved <> NEW.saved BEGIN
    INSERT OR REPLACE INTO released VALUES (OLD.saved, unixepoch());
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER released_image AFTER UPDATE OF image_digest ON sandboxes WHEN OLD.image_digest <> '' AND OLD.image_digest <> NEW.image_digest BEGIN
    INSERT OR REPLACE INTO released VALUES (OLD.image_digest, unixepoch());
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER released_sandbox AFTER DELETE ON sandboxes BEGIN
    INSERT OR REPLACE INTO released SELECT name, unixepoch() FROM (SELECT OLD.saved AS name UNION SELECT OLD.image_digest) WHERE name <> '';
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER released_checkpoint AFTER DELETE ON checkpoints BEGIN
    INSERT OR REPLACE INTO released SELECT name, unixepoch() FROM (SELECT OLD.id AS name UNION SELECT OLD.image_digest) WHERE name <> '';
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER released_snapshot AFTER DELETE ON snapshots WHEN OLD.digest <> '' BEGIN
    INSERT OR REPLACE INTO released VALUES (OLD.digest, unixepoch());
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER released_saved;
DROP TRIGGER released_image;
DROP TRIGGER released_sandbox;
DROP TRIGGER released_checkpoint;
DROP TRIGGER released_snapshot;
DROP TABLE released;
