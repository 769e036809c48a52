-- Counts the changes that can take a right from a user, by whichever process, so that servers notice changes that others make.
-- A right that is given is not counted: no cache has that it was absent.

-- +goose Up
CREATE TABLE rights_changes (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO rights_changes (id, changes) VALUES (1, 0);
-- +goose StatementBegin
CREATE TRIGGER rights_of_tokens_changed AFTER UPDATE OF revoked_at, expires_at, scopes, workspace_id, user_id, workspace_only ON tokens BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_tokens_deleted AFTER DELETE ON tokens BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_sessions_deleted AFTER DELETE ON sessions BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_members_changed AFTER UPDATE ON members BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_members_deleted AFTER DELETE ON members BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_users_changed AFTER UPDATE OF administrator, disabled_at ON users BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_users_deleted AFTER DELETE ON users BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_ssh_keys_changed AFTER UPDATE OF user_id, workspace_id, expires_at ON ssh_keys BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rights_of_ssh_keys_deleted AFTER DELETE ON ssh_keys BEGIN
    UPDATE rights_changes SET changes = changes + 1;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER rights_of_tokens_changed;
DROP TRIGGER rights_of_tokens_deleted;
DROP TRIGGER rights_of_sessions_deleted;
DROP TRIGGER rights_of_members_changed;
DROP TRIGGER rights_of_members_deleted;
DROP TRIGGER rights_of_users_changed;
DROP TRIGGER rights_of_users_deleted;
DROP TRIGGER rights_of_ssh_keys_changed;
DROP TRIGGER rights_of_ssh_keys_deleted;
DROP TABLE rights_changes;
