-- +goose Up
-- The schema of SQLite after its migrations up to this number. Text is compared byte by byte, as SQLite does.
CREATE TABLE users (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    email TEXT COLLATE "C" NOT NULL DEFAULT '',
    password TEXT COLLATE "C" NOT NULL DEFAULT '',
    administrator BIGINT NOT NULL DEFAULT 0,
    home TEXT COLLATE "C" NOT NULL DEFAULT '',
    updated_at BIGINT NOT NULL DEFAULT 0,
    disabled_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE workspaces (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    is_default BIGINT NOT NULL DEFAULT 0,
    created_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    slug TEXT COLLATE "C" NOT NULL DEFAULT '',
    description TEXT COLLATE "C" NOT NULL DEFAULT '',
    updated_at BIGINT NOT NULL DEFAULT 0,
    deleting_at BIGINT NOT NULL DEFAULT 0,
    url_access TEXT COLLATE "C" NOT NULL DEFAULT '',
    code_scan TEXT COLLATE "C" NOT NULL DEFAULT 'off' CHECK (code_scan IN ('off', 'warn', 'block')),
    code_scan_rules TEXT COLLATE "C" NOT NULL DEFAULT '',
    audit_output BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE members (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE TABLE tokens (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash TEXT COLLATE "C" NOT NULL UNIQUE, -- SHA-256 in hexadecimal
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    description TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0,
    expires_at BIGINT NOT NULL DEFAULT 0,
    revoked_at BIGINT NOT NULL DEFAULT 0,
    scopes TEXT COLLATE "C" NOT NULL DEFAULT '',
    workspace_only BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE sandboxes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    name TEXT COLLATE "C" NOT NULL,
    host_label TEXT COLLATE "C" NOT NULL UNIQUE,
    state TEXT COLLATE "C" NOT NULL,
    cause_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    cause_message TEXT COLLATE "C" NOT NULL DEFAULT '',
    image TEXT COLLATE "C" NOT NULL,
    image_digest TEXT COLLATE "C" NOT NULL DEFAULT '',
    env TEXT COLLATE "C" NOT NULL, -- JSON object; its values are secrets
    labels TEXT COLLATE "C" NOT NULL, -- JSON object; sandbox_labels is its index
    memory_bytes BIGINT NOT NULL,
    cpu_milli BIGINT NOT NULL,
    disk_bytes BIGINT NOT NULL,
    readiness_port BIGINT NOT NULL DEFAULT 0,
    ttl BIGINT NOT NULL DEFAULT 0,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL DEFAULT 0,
    ended_at BIGINT NOT NULL DEFAULT 0,
    handle BYTEA,
    request_hash TEXT COLLATE "C" NOT NULL,
    idle_timeout BIGINT NOT NULL DEFAULT 0,
    paused_timeout BIGINT NOT NULL DEFAULT 0,
    execution_timeout BIGINT NOT NULL DEFAULT 0,
    on_idle TEXT COLLATE "C" NOT NULL DEFAULT '',
    description TEXT COLLATE "C" NOT NULL DEFAULT '',
    metadata TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    parent_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    saved TEXT COLLATE "C" NOT NULL DEFAULT '',
    paused_at BIGINT NOT NULL DEFAULT 0,
    last_activity_at BIGINT NOT NULL DEFAULT 0,
    snapshot_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    network_enabled BIGINT NOT NULL DEFAULT 0,
    ports TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    usage_at BIGINT NOT NULL DEFAULT 0,
    usage_running BIGINT NOT NULL DEFAULT 0,
    usage_cpu BIGINT NOT NULL DEFAULT 0,
    usage_memory BIGINT NOT NULL DEFAULT 0,
    usage_sent BIGINT NOT NULL DEFAULT 0,
    usage_received BIGINT NOT NULL DEFAULT 0,
    usage_box_cpu BIGINT NOT NULL DEFAULT 0,
    memory_lost TEXT COLLATE "C" NOT NULL DEFAULT '',
    apt_packages TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    npm_packages TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    saved_bytes BIGINT NOT NULL DEFAULT 0,
    image_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    registry_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    url_access TEXT COLLATE "C" NOT NULL DEFAULT '',
    checkpoint_interval BIGINT NOT NULL DEFAULT 0,
    last_checkpoint_at BIGINT NOT NULL DEFAULT 0,
    ttl_from BIGINT NOT NULL DEFAULT 0,
    pip_packages TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    checkpoint_id TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE sandbox_labels (
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    label TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (sandbox_id, label)
);

CREATE TABLE events (
    seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    time BIGINT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C" NOT NULL , -- JSON object
    workspace_id TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE idempotency_keys (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, idempotency_key)
);

CREATE TABLE checkpoints (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    image_digest TEXT COLLATE "C" NOT NULL DEFAULT '',
    restores BIGINT NOT NULL DEFAULT 0,
    parent_id TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE executions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL, -- no reference: whoever forgets an execution removes its streams first
    workspace_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    argv TEXT COLLATE "C" NOT NULL, -- JSON array
    state TEXT COLLATE "C" NOT NULL,
    exit_code BIGINT, -- NULL when not known
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    tty BIGINT NOT NULL DEFAULT 0,
    one_shot BIGINT NOT NULL DEFAULT 0,
    cancel TEXT COLLATE "C" NOT NULL DEFAULT '',
    stdin TEXT COLLATE "C" NOT NULL DEFAULT '',
    stdout TEXT COLLATE "C" NOT NULL,
    stdout_off BIGINT NOT NULL DEFAULT 0,
    stdout_bytes BIGINT NOT NULL DEFAULT 0,
    stdout_truncated BIGINT NOT NULL DEFAULT 0,
    stderr TEXT COLLATE "C" NOT NULL,
    stderr_off BIGINT NOT NULL DEFAULT 0,
    stderr_bytes BIGINT NOT NULL DEFAULT 0,
    stderr_truncated BIGINT NOT NULL DEFAULT 0,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL DEFAULT 0,
    ended_at BIGINT NOT NULL DEFAULT 0,
    duration BIGINT NOT NULL DEFAULT 0,
    limit_exceeded TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE snapshots (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    state TEXT COLLATE "C" NOT NULL, -- creating, ready or deleted
    name TEXT COLLATE "C" NOT NULL,
    tag TEXT COLLATE "C" NOT NULL, -- '' for none; of one that is being created the one it will get
    description TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    metadata TEXT COLLATE "C" NOT NULL, -- JSON object
    parent_id TEXT COLLATE "C" NOT NULL,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    image TEXT COLLATE "C" NOT NULL,
    base_digest TEXT COLLATE "C" NOT NULL DEFAULT '',
    digest TEXT COLLATE "C" NOT NULL DEFAULT '',
    size_bytes BIGINT NOT NULL DEFAULT 0,
    layer_bytes BIGINT NOT NULL DEFAULT 0,
    file_count BIGINT NOT NULL DEFAULT 0,
    public BIGINT NOT NULL DEFAULT 0,
    env TEXT COLLATE "C" NOT NULL, -- JSON object; its values are secrets
    content_hash TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT NOT NULL DEFAULT 0,
    is_layer BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE sessions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    access_hash TEXT COLLATE "C" NOT NULL UNIQUE,
    access_expires_at BIGINT NOT NULL,
    refresh_hash TEXT COLLATE "C" NOT NULL UNIQUE,
    refresh_expires_at BIGINT NOT NULL,
    method TEXT COLLATE "C" NOT NULL, -- password, invitation, or the provider
    address TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    refreshed_at BIGINT NOT NULL,
    refresh_time BIGINT NOT NULL DEFAULT 1800000000000,
    ends_at BIGINT NOT NULL DEFAULT 0,
    used BIGINT NOT NULL DEFAULT 1
);

CREATE TABLE spent_tokens (
    hash TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    rowid BIGINT GENERATED BY DEFAULT AS IDENTITY -- the order of the rows, which SQLite has without a column
);

CREATE TABLE invitations (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash TEXT COLLATE "C" NOT NULL UNIQUE, -- SHA-256 of the code in hexadecimal
    workspace_id TEXT COLLATE "C" REFERENCES workspaces (id) ON DELETE CASCADE, -- NULL: none to join
    role TEXT COLLATE "C" NOT NULL DEFAULT '',
    email TEXT COLLATE "C" NOT NULL DEFAULT '', -- in lower case; '' when it is for user_id
    user_id TEXT COLLATE "C" REFERENCES users (id) ON DELETE CASCADE, -- whose password it sets; NULL for somebody new
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE identities (
    provider TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (provider, subject)
);

CREATE TABLE registries (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C" NOT NULL, -- as it was written
    host TEXT COLLATE "C" NOT NULL, -- as references have it
    username TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL, -- of the key that password is encrypted with
    password BYTEA NOT NULL, -- AES-256-GCM, for this id
    enabled BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE quotas (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    value BIGINT NOT NULL, -- 0 for no limit
    PRIMARY KEY (workspace_id, name)
);

CREATE TABLE audit_records (
    seq BIGINT PRIMARY KEY, -- without a gap
    record TEXT COLLATE "C" NOT NULL, -- JSON; the bytes that are hashed
    hash TEXT COLLATE "C" NOT NULL, -- SHA-256 over the hash before and the record, in hexadecimal
    -- PostgreSQL has no NUL in text; the bytes of the record stay.
    time TEXT COLLATE "C" GENERATED ALWAYS AS ((replace(record, '\u0000', '\ufffd')::json ->> 'time')) STORED,
    workspace_id TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce((replace(record, '\u0000', '\ufffd')::json ->> 'workspace_id'), '')) STORED,
    user_id TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce((replace(record, '\u0000', '\ufffd')::json ->> 'user_id'), '')) STORED,
    object_id TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce((replace(record, '\u0000', '\ufffd')::json ->> 'object_id'), '')) STORED,
    object_name TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce((replace(record, '\u0000', '\ufffd')::json ->> 'object_name'), '')) STORED,
    action TEXT COLLATE "C" GENERATED ALWAYS AS ((replace(record, '\u0000', '\ufffd')::json ->> 'action')) STORED,
    outcome TEXT COLLATE "C" GENERATED ALWAYS AS ((replace(record, '\u0000', '\ufffd')::json ->> 'outcome')) STORED
);

CREATE TABLE audit_chain (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    anchor_seq BIGINT NOT NULL, -- the newest record that was cut off
    anchor_hash TEXT COLLATE "C" NOT NULL,
    head_seq BIGINT NOT NULL, -- the newest record
    head_hash TEXT COLLATE "C" NOT NULL,
    bytes BIGINT NOT NULL -- of the records that are kept
);

CREATE TABLE catalogue_images (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    image TEXT COLLATE "C" NOT NULL,
    tag TEXT COLLATE "C" NOT NULL, -- '' for an image by digest
    description TEXT COLLATE "C" NOT NULL,
    enabled BIGINT NOT NULL,
    is_default BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    readiness_port BIGINT NOT NULL, -- 0 for none
    ttl BIGINT NOT NULL, -- nanoseconds, 0 for none
    registry_id TEXT COLLATE "C" NOT NULL, -- '' for any; it may be of one that was deleted
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE disabled_images (
    image_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    disabled_by TEXT COLLATE "C" NOT NULL,
    disabled_at BIGINT NOT NULL
);

CREATE TABLE builds (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    memory_bytes BIGINT NOT NULL, -- what each box of it is limited to
    cpu_milli BIGINT NOT NULL,
    disk_bytes BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE audit_intents (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    record TEXT COLLATE "C" NOT NULL -- JSON; what was known before the operation did anything
);

CREATE TABLE installation (
    only_row BIGINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
    id TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL -- raised by every transaction that is durable
);

CREATE TABLE upgrades (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

CREATE TABLE released (
    name TEXT COLLATE "C" PRIMARY KEY, -- id of a checkpoint, or digest of a root filesystem
    released_at BIGINT NOT NULL -- seconds since 1970
);

CREATE TABLE checkpoints_begun (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    begun_at BIGINT NOT NULL,
    copy_of TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE images (
    key TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- of the owner, the reference and the content
    position BIGINT NOT NULL, -- the order of the builds
    name TEXT COLLATE "C" NOT NULL,
    tag TEXT COLLATE "C" NOT NULL,
    is_current BIGINT NOT NULL, -- the reference means this image
    owner TEXT COLLATE "C" NOT NULL, -- the only workspace that may use it; '' for all
    digest TEXT COLLATE "C" NOT NULL, -- of the root filesystem
    size_bytes BIGINT NOT NULL,
    file_count BIGINT NOT NULL,
    file_time BIGINT NOT NULL,
    mark TEXT COLLATE "C" NOT NULL, -- in hexadecimal
    manifest TEXT COLLATE "C" NOT NULL, -- of the OCI image: digest, bytes and type
    manifest_bytes BIGINT NOT NULL,
    manifest_type TEXT COLLATE "C" NOT NULL,
    recipe_hash TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    config TEXT COLLATE "C" NOT NULL, -- JSON
    memory_bytes BIGINT NOT NULL,
    readiness_port BIGINT NOT NULL,
    ttl BIGINT NOT NULL, -- nanoseconds
    pull_reference TEXT COLLATE "C" NOT NULL, -- '' for an image that was not pulled
    pull_asked TEXT COLLATE "C" NOT NULL, -- the digest that the reference named
    pull_checked_at BIGINT NOT NULL,
    is_private BIGINT NOT NULL, -- every pull needed a login
    committed TEXT COLLATE "C" NOT NULL, -- JSON: base and layer; '' for an image that was not committed
    cache_key TEXT COLLATE "C" NOT NULL,
    packages TEXT COLLATE "C" NOT NULL, -- JSON
    lost_at BIGINT NOT NULL, -- when no database knew it; 0 for never
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    below TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE image_users (
    image_key TEXT COLLATE "C" NOT NULL REFERENCES images (key) ON DELETE CASCADE,
    workspace_id TEXT COLLATE "C" NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (image_key, workspace_id)
);

CREATE TABLE image_readers (
    image_key TEXT COLLATE "C" NOT NULL REFERENCES images (key) ON DELETE CASCADE,
    proof TEXT COLLATE "C" NOT NULL, -- workspace, credential, and the time of its last change
    proven_at BIGINT NOT NULL,
    PRIMARY KEY (image_key, proof)
);

CREATE TABLE ssh_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    workspace_id TEXT COLLATE "C" REFERENCES workspaces (id) ON DELETE CASCADE, -- NULL: all workspaces of the user
    name TEXT COLLATE "C" NOT NULL,
    public_key TEXT COLLATE "C" NOT NULL, -- type and base64, as in authorized_keys
    fingerprint TEXT COLLATE "C" NOT NULL UNIQUE, -- SHA256:…; a key belongs to one user
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0,
    expires_at BIGINT NOT NULL DEFAULT 0 -- 0: never
);

CREATE TABLE webhooks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    url TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    types TEXT COLLATE "C" NOT NULL, -- of events, as ',created,failed,'; '' for all
    enabled BIGINT NOT NULL,
    disabled_reason TEXT COLLATE "C" NOT NULL DEFAULT '', -- why the server disabled it
    secret TEXT COLLATE "C" NOT NULL, -- encrypted
    old_secret TEXT COLLATE "C" NOT NULL DEFAULT '', -- encrypted; signs beside secret until old_until
    old_until BIGINT NOT NULL DEFAULT 0,
    pending BIGINT NOT NULL DEFAULT 0, -- deliveries in that state
    dropped BIGINT NOT NULL DEFAULT 0, -- events without a delivery, because too many were pending
    failing_since BIGINT NOT NULL DEFAULT 0, -- the first failed attempt after the last success
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    answered BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE webhook_deliveries (
    seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    webhook_id TEXT COLLATE "C" NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    workspace_id TEXT COLLATE "C" NOT NULL,
    event_seq BIGINT NOT NULL, -- 0 for a ping
    sandbox_id TEXT COLLATE "C" NOT NULL,
    sandbox_name TEXT COLLATE "C" NOT NULL,
    time BIGINT NOT NULL, -- of the event
    type TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C" NOT NULL, -- JSON object
    state TEXT COLLATE "C" NOT NULL DEFAULT 'pending',
    round BIGINT NOT NULL DEFAULT 0, -- grows each time that it is requested again
    attempts BIGINT NOT NULL DEFAULT 0, -- of the round
    created_at BIGINT NOT NULL,
    retry_until BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    attempted_at BIGINT NOT NULL DEFAULT 0,
    ended_at BIGINT NOT NULL DEFAULT 0,
    status BIGINT NOT NULL DEFAULT 0, -- of HTTP; 0 without an answer
    duration BIGINT NOT NULL DEFAULT 0,
    error TEXT COLLATE "C" NOT NULL DEFAULT '',
    response TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX workspaces_default ON workspaces (is_default) WHERE is_default = 1;
CREATE INDEX tokens_owner ON tokens (workspace_id, user_id, created_at);
CREATE INDEX sandboxes_name ON sandboxes (workspace_id, name, created_at);
CREATE INDEX sandboxes_page ON sandboxes (workspace_id, created_at, id);
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at > 0;
CREATE INDEX events_sandbox ON events (sandbox_id, seq);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_sandbox ON idempotency_keys (sandbox_id);
CREATE UNIQUE INDEX checkpoints_name ON checkpoints (sandbox_id, name);
CREATE INDEX executions_sandbox ON executions (sandbox_id, created_at, id);
CREATE INDEX executions_live ON executions (sandbox_id) WHERE state IN ('queued', 'running');
CREATE INDEX executions_ended ON executions (ended_at) WHERE ended_at > 0;
CREATE INDEX sandboxes_snapshot ON sandboxes (snapshot_id) WHERE snapshot_id <> '';
CREATE UNIQUE INDEX snapshots_tag ON snapshots (workspace_id, name, tag) WHERE state = 'ready' AND tag <> '';
CREATE INDEX snapshots_page ON snapshots (workspace_id, created_at, id) WHERE state = 'ready';
CREATE INDEX snapshots_sandbox ON snapshots (sandbox_id, created_at) WHERE sandbox_id <> '';
CREATE INDEX snapshots_content ON snapshots (workspace_id, content_hash) WHERE state = 'ready' AND content_hash <> '';
CREATE INDEX snapshots_public ON snapshots (created_at, id) WHERE state = 'ready' AND public = 1;
CREATE UNIQUE INDEX users_name ON users (name);
CREATE UNIQUE INDEX users_email ON users (email) WHERE email <> '';
CREATE UNIQUE INDEX workspaces_slug ON workspaces (slug) WHERE slug <> '';
CREATE INDEX workspaces_deleting ON workspaces (deleting_at) WHERE deleting_at > 0;
CREATE INDEX members_user ON members (user_id);
CREATE INDEX tokens_user ON tokens (user_id);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (refresh_expires_at);
CREATE INDEX spent_tokens_session ON spent_tokens (session_id);
CREATE INDEX invitations_workspace ON invitations (workspace_id, created_at);
CREATE INDEX invitations_email ON invitations (email) WHERE email <> '';
CREATE INDEX identities_user ON identities (user_id);
CREATE UNIQUE INDEX registries_name ON registries (workspace_id, name);
CREATE INDEX sandboxes_quota ON sandboxes (workspace_id, state, memory_bytes, cpu_milli, disk_bytes, saved_bytes) WHERE state NOT IN ('destroyed', 'failed');
CREATE INDEX audit_records_workspace ON audit_records (workspace_id, seq);
CREATE INDEX audit_records_user ON audit_records (user_id, seq);
CREATE INDEX audit_records_object ON audit_records (object_id, seq);
CREATE INDEX audit_records_time ON audit_records (time);
CREATE UNIQUE INDEX catalogue_images_name ON catalogue_images (workspace_id, name);
CREATE UNIQUE INDEX catalogue_images_default ON catalogue_images (workspace_id) WHERE is_default = 1;
CREATE UNIQUE INDEX sandboxes_live_name ON sandboxes (workspace_id, name) WHERE state NOT IN ('destroyed', 'failed', 'destroying');
CREATE INDEX builds_quota ON builds (workspace_id, memory_bytes, cpu_milli, disk_bytes);
CREATE INDEX checkpoints_begun_sandbox ON checkpoints_begun (sandbox_id);
CREATE INDEX images_position ON images (position);
CREATE INDEX ssh_keys_user ON ssh_keys (user_id, created_at);
CREATE INDEX ssh_keys_workspace ON ssh_keys (workspace_id) WHERE workspace_id IS NOT NULL;
CREATE INDEX events_workspace ON events (workspace_id, seq, type, time);
CREATE INDEX webhooks_workspace ON webhooks (workspace_id, created_at);
CREATE INDEX webhooks_waiting ON webhooks (id) WHERE pending > 0;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (webhook_id, seq);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at > 0;
CREATE INDEX webhook_deliveries_expired ON webhook_deliveries (retry_until) WHERE state = 'pending';
CREATE INDEX sandboxes_live_page ON sandboxes (workspace_id, created_at, id) WHERE state NOT IN ('destroyed', 'failed');

-- The last transaction of each process that writes. It tells whether a transaction is committed whose connection was lost.
-- SQLite has no such connections.
CREATE TABLE writers (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    mark BIGINT NOT NULL,
    begun_at BIGINT NOT NULL
);

-- The greatest number that rows of a table have had, also rows that were deleted. SQLite has sqlite_sequence. A sequence of
-- PostgreSQL would show numbers whose rows are not committed.
CREATE TABLE sequences (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO sequences (name, last) VALUES ('events', 0);

INSERT INTO installation (only_row, id, generation) VALUES (1, replace(gen_random_uuid()::text, '-', ''), 0);

-- +goose StatementBegin
-- release notes that a row does not need the checkpoint or the root filesystem any more.
CREATE FUNCTION release(item TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO released (name, released_at) SELECT item, extract(epoch FROM now())::BIGINT WHERE item <> ''
        ON CONFLICT (name) DO UPDATE SET released_at = excluded.released_at;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION begun_checkpoint() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM checkpoints_begun WHERE id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER begun_checkpoint AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION begun_checkpoint();

-- +goose StatementBegin
CREATE FUNCTION begun_saved() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sandboxes SET checkpoint_id = (
        SELECT CASE c.name WHEN '' THEN c.parent_id ELSE c.id END
        FROM checkpoints_begun AS b JOIN checkpoints AS c ON c.id = b.copy_of WHERE b.id = NEW.saved)
    WHERE id = NEW.id AND EXISTS (
        SELECT 1 FROM checkpoints_begun AS b JOIN checkpoints AS c ON c.id = b.copy_of WHERE b.id = NEW.saved);
    DELETE FROM checkpoints_begun WHERE id = NEW.saved;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER begun_saved AFTER UPDATE OF saved ON sandboxes FOR EACH ROW WHEN (NEW.saved <> '' AND OLD.saved <> NEW.saved) EXECUTE FUNCTION begun_saved();

-- Triggers of statements: each update of a row passes all its versions of the transaction, so an update for each of
-- many deliveries takes time by the square of their number.
-- +goose StatementBegin
CREATE FUNCTION delivery_added() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhooks SET pending = pending + d.n
    FROM (SELECT webhook_id, count(*) AS n FROM added WHERE state = 'pending' GROUP BY webhook_id) AS d WHERE id = d.webhook_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER delivery_added AFTER INSERT ON webhook_deliveries REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION delivery_added();

-- +goose StatementBegin
CREATE FUNCTION delivery_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhooks SET pending = pending + d.n
    FROM (SELECT webhook_id, sum(n) AS n FROM (
            SELECT webhook_id, 1 AS n FROM changed WHERE state = 'pending'
            UNION ALL SELECT webhook_id, -1 FROM replaced WHERE state = 'pending') AS each
        GROUP BY webhook_id HAVING sum(n) <> 0) AS d WHERE id = d.webhook_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER delivery_changed AFTER UPDATE ON webhook_deliveries REFERENCING OLD TABLE AS replaced NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION delivery_changed();

-- +goose StatementBegin
CREATE FUNCTION delivery_deleted() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhooks SET pending = pending - d.n
    FROM (SELECT webhook_id, count(*) AS n FROM deleted WHERE state = 'pending' GROUP BY webhook_id) AS d WHERE id = d.webhook_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER delivery_deleted AFTER DELETE ON webhook_deliveries REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION delivery_deleted();

-- +goose StatementBegin
CREATE FUNCTION event_webhooks() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sequences SET last = NEW.seq WHERE name = 'events';
    IF NOT EXISTS (SELECT 1 FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled = 1) THEN
        RETURN NULL;
    END IF;
    UPDATE webhooks SET dropped = dropped + 1 WHERE workspace_id = NEW.workspace_id AND enabled = 1
        AND pending >= 20000 / (SELECT count(*) FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled = 1)
        AND (types = '' OR strpos(types, ',' || NEW.type || ',') > 0);
    INSERT INTO webhook_deliveries (id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data,
            created_at, retry_until, next_attempt_at)
        SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), id, workspace_id, NEW.seq, NEW.sandbox_id,
            coalesce((SELECT name FROM sandboxes WHERE sandboxes.id = NEW.sandbox_id), ''), NEW.time, NEW.type, NEW.message, NEW.data,
            NEW.time, NEW.time + 259200000000000, 0
        FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled = 1
        AND pending < 20000 / (SELECT count(*) FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled = 1)
        AND (types = '' OR strpos(types, ',' || NEW.type || ',') > 0);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER event_webhooks AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION event_webhooks();

-- +goose StatementBegin
CREATE FUNCTION parent_deleted() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE checkpoints SET parent_id = OLD.parent_id WHERE sandbox_id = OLD.sandbox_id AND parent_id = OLD.id;
    UPDATE sandboxes SET checkpoint_id = OLD.parent_id WHERE id = OLD.sandbox_id AND checkpoint_id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER parent_deleted AFTER DELETE ON checkpoints FOR EACH ROW WHEN (OLD.name <> '') EXECUTE FUNCTION parent_deleted();

-- +goose StatementBegin
CREATE FUNCTION released_checkpoint() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM release(OLD.id);
    PERFORM release(OLD.image_digest);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER released_checkpoint AFTER DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION released_checkpoint();

-- +goose StatementBegin
CREATE FUNCTION released_image() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM release(OLD.image_digest);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER released_image AFTER UPDATE OF image_digest ON sandboxes FOR EACH ROW WHEN (OLD.image_digest <> '' AND OLD.image_digest <> NEW.image_digest) EXECUTE FUNCTION released_image();

-- +goose StatementBegin
CREATE FUNCTION released_sandbox() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM release(OLD.saved);
    PERFORM release(OLD.image_digest);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER released_sandbox AFTER DELETE ON sandboxes FOR EACH ROW EXECUTE FUNCTION released_sandbox();

-- +goose StatementBegin
CREATE FUNCTION released_saved() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM release(OLD.saved);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER released_saved AFTER UPDATE OF saved ON sandboxes FOR EACH ROW WHEN (OLD.saved <> '' AND OLD.saved <> NEW.saved) EXECUTE FUNCTION released_saved();

-- +goose StatementBegin
CREATE FUNCTION released_snapshot() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM release(OLD.digest);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER released_snapshot AFTER DELETE ON snapshots FOR EACH ROW EXECUTE FUNCTION released_snapshot();

-- +goose StatementBegin
CREATE FUNCTION workspace_webhooks() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM webhooks WHERE workspace_id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_webhooks AFTER UPDATE OF deleting_at ON workspaces FOR EACH ROW WHEN (NEW.deleting_at > 0) EXECUTE FUNCTION workspace_webhooks();
