-- Counts the changes that can take a right from a user, by whichever process, so that servers notice changes that others make.
-- A right that is given is not counted: no cache has that it was absent.

-- +goose Up
CREATE TABLE rights_changes (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    changes BIGINT NOT NULL
);
INSERT INTO rights_changes (id, changes) VALUES (1, 0);

-- +goose StatementBegin
CREATE FUNCTION rights_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rights_changes SET changes = changes + 1;
    PERFORM pg_notify('modbox_rights', '');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER rights_of_tokens_changed AFTER UPDATE OF revoked_at, expires_at, scopes, workspace_id, user_id, workspace_only ON tokens FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_tokens_deleted AFTER DELETE ON tokens FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_sessions_deleted AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_members_changed AFTER UPDATE ON members FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_members_deleted AFTER DELETE ON members FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_users_changed AFTER UPDATE OF administrator, disabled_at ON users FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_users_deleted AFTER DELETE ON users FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_ssh_keys_changed AFTER UPDATE OF user_id, workspace_id, expires_at ON ssh_keys FOR EACH ROW EXECUTE FUNCTION rights_changed();
CREATE TRIGGER rights_of_ssh_keys_deleted AFTER DELETE ON ssh_keys FOR EACH ROW EXECUTE FUNCTION rights_changed();

-- +goose Down
DROP TRIGGER rights_of_tokens_changed ON tokens;
DROP TRIGGER rights_of_tokens_deleted ON tokens;
DROP TRIGGER rights_of_sessions_deleted ON sessions;
DROP TRIGGER rights_of_members_changed ON members;
DROP TRIGGER rights_of_members_deleted ON members;
DROP TRIGGER rights_of_users_changed ON users;
DROP TRIGGER rights_of_users_deleted ON users;
DROP TRIGGER rights_of_ssh_keys_changed ON ssh_keys;
DROP TRIGGER rights_of_ssh_keys_deleted ON ssh_keys;
DROP FUNCTION rights_changed;
DROP TABLE rights_changes;
