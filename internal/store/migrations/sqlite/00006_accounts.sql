-- Users who sign in, workspaces with members, narrowed tokens.

-- +goose Up
ALTER TABLE users ADD COLUMN email TEXT NOT NULL DEFAULT ''; -- in lower case
ALTER TABLE users ADD COLUMN password TEXT NOT NULL DEFAULT ''; -- argon2id, in PHC form
ALTER TABLE users ADD COLUMN administrator SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN home TEXT NOT NULL DEFAULT ''; -- the workspace it acts in when it names none
ALTER TABLE users ADD COLUMN updated_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN disabled_at BIGINT NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX users_name ON users (name);
CREATE UNIQUE INDEX users_email ON users (email) WHERE email <> '';

ALTER TABLE workspaces ADD COLUMN slug TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN updated_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workspaces ADD COLUMN deleting_at BIGINT NOT NULL DEFAULT 0; -- the intent to delete it
UPDATE workspaces SET slug = name WHERE is_default = 1;
CREATE UNIQUE INDEX workspaces_slug ON workspaces (slug) WHERE slug <> '';
CREATE INDEX workspaces_deleting ON workspaces (deleting_at) WHERE deleting_at > 0;
CREATE INDEX members_user ON members (user_id);

ALTER TABLE tokens ADD COLUMN scopes TEXT NOT NULL DEFAULT ''; -- separated by spaces; '' for all
ALTER TABLE tokens ADD COLUMN workspace_only SMALLINT NOT NULL DEFAULT 0;
CREATE INDEX tokens_user ON tokens (user_id);

-- A sign-in: its present access and refresh token, as SHA-256 in hexadecimal.
CREATE TABLE sessions (
    id                 TEXT   NOT NULL PRIMARY KEY,
    user_id            TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    access_hash        TEXT   NOT NULL UNIQUE,
    access_expires_at  BIGINT NOT NULL,
    refresh_hash       TEXT   NOT NULL UNIQUE,
    refresh_expires_at BIGINT NOT NULL,
    method             TEXT   NOT NULL, -- password, invitation, or the provider
    address            TEXT   NOT NULL,
    created_at         BIGINT NOT NULL,
    refreshed_at       BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (refresh_expires_at);

-- Refresh tokens that were used: a second use ends the session.
CREATE TABLE spent_tokens (
    hash       TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE
);
CREATE INDEX spent_tokens_session ON spent_tokens (session_id);

-- One-time codes: to join a workspace, or to choose a password.
CREATE TABLE invitations (
    id           TEXT   NOT NULL PRIMARY KEY,
    hash         TEXT   NOT NULL UNIQUE, -- SHA-256 of the code in hexadecimal
    workspace_id TEXT   REFERENCES workspaces (id) ON DELETE CASCADE, -- NULL: none to join
    role         TEXT   NOT NULL DEFAULT '',
    email        TEXT   NOT NULL DEFAULT '', -- in lower case; '' when it is for user_id
    user_id      TEXT   REFERENCES users (id) ON DELETE CASCADE, -- whose password it sets; NULL for somebody new
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX invitations_workspace ON invitations (workspace_id, created_at);
CREATE INDEX invitations_email ON invitations (email) WHERE email <> '';

-- Who a user is at the providers it signs in with.
CREATE TABLE identities (
    provider   TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    user_id    TEXT   NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (provider, subject)
);
CREATE INDEX identities_user ON identities (user_id);

-- +goose Down
DROP TABLE identities;
DROP TABLE invitations;
DROP TABLE spent_tokens;
DROP TABLE sessions;
DROP INDEX tokens_user;
ALTER TABLE tokens DROP COLUMN workspace_only;
ALTER TABLE tokens DROP COLUMN scopes;
DROP INDEX members_user;
DROP INDEX workspaces_deleting;
DROP INDEX workspaces_slug;
ALTER TABLE workspaces DROP COLUMN deleting_at;
ALTER TABLE workspaces DROP COLUMN updated_at;
ALTER TABLE workspaces DROP COLUMN description;
ALTER TABLE workspaces DROP COLUMN slug;
DROP INDEX users_email;
DROP INDEX users_name;
ALTER TABLE users DROP COLUMN disabled_at;
ALTER TABLE users DROP COLUMN updated_at;
ALTER TABLE users DROP COLUMN home;
ALTER TABLE users DROP COLUMN administrator;
ALTER TABLE users DROP COLUMN password;
ALTER TABLE users DROP COLUMN email;
