-- Webhooks, and their deliveries. A trigger adds a delivery for each webhook in the transaction of the event,
-- so that no event that is recorded is lost.

-- +goose Up
CREATE TABLE webhooks (
    id              TEXT   NOT NULL PRIMARY KEY,
    workspace_id    TEXT   NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    url             TEXT   NOT NULL,
    description     TEXT   NOT NULL,
    types           TEXT   NOT NULL, -- of events, as ',created,failed,'; '' for all
    enabled         BIGINT NOT NULL,
    disabled_reason TEXT   NOT NULL DEFAULT '', -- why the server disabled it
    secret          TEXT   NOT NULL, -- encrypted
    old_secret      TEXT   NOT NULL DEFAULT '', -- encrypted; signs beside secret until old_until
    old_until       BIGINT NOT NULL DEFAULT 0,
    pending         BIGINT NOT NULL DEFAULT 0, -- deliveries in that state
    dropped         BIGINT NOT NULL DEFAULT 0, -- events without a delivery, because too many were pending
    failing_since   BIGINT NOT NULL DEFAULT 0, -- the first failed attempt after the last success
    created_by      TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX webhooks_workspace ON webhooks (workspace_id, created_at);
CREATE INDEX webhooks_waiting ON webhooks (id) WHERE pending > 0;

CREATE TABLE webhook_deliveries (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT   NOT NULL UNIQUE,
    webhook_id      TEXT   NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    workspace_id    TEXT   NOT NULL,
    event_seq       BIGINT NOT NULL, -- 0 for a ping
    sandbox_id      TEXT   NOT NULL,
    sandbox_name    TEXT   NOT NULL,
    time            BIGINT NOT NULL, -- of the event
    type            TEXT   NOT NULL,
    message         TEXT   NOT NULL,
    data            TEXT   NOT NULL, -- JSON object
    state           TEXT   NOT NULL DEFAULT 'pending',
    round           BIGINT NOT NULL DEFAULT 0, -- grows each time that it is requested again
    attempts        BIGINT NOT NULL DEFAULT 0, -- of the round
    created_at      BIGINT NOT NULL,
    retry_until     BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    attempted_at    BIGINT NOT NULL DEFAULT 0,
    ended_at        BIGINT NOT NULL DEFAULT 0,
    status          BIGINT NOT NULL DEFAULT 0, -- of HTTP; 0 without an answer
    duration        BIGINT NOT NULL DEFAULT 0,
    error           TEXT   NOT NULL DEFAULT '',
    response        TEXT   NOT NULL DEFAULT ''
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (webhook_id, seq);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at > 0;
CREATE INDEX webhook_deliveries_expired ON webhook_deliveries (retry_until) WHERE state = 'pending';

-- 20000 deliveries of a workspace may wait, in equal shares for its enabled webhooks; a delivery is attempted for
-- 3 days. Package webhook has both numbers.
-- +goose StatementBegin
CREATE TRIGGER event_webhooks AFTER INSERT ON events WHEN EXISTS (SELECT 1 FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled) BEGIN
    UPDATE webhooks SET dropped = dropped + 1 WHERE workspace_id = NEW.workspace_id AND enabled
        AND pending >= 20000 / (SELECT count(*) FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled)
        AND (types = '' OR instr(types, ',' || NEW.type || ',') > 0);
    INSERT INTO webhook_deliveries (id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data,
            created_at, retry_until, next_attempt_at)
        SELECT 'msg_' || lower(hex(randomblob(16))), id, workspace_id, NEW.seq, NEW.sandbox_id,
            coalesce((SELECT name FROM sandboxes WHERE sandboxes.id = NEW.sandbox_id), ''), NEW.time, NEW.type, NEW.message, NEW.data,
            NEW.time, NEW.time + 259200000000000, 0
        FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled
        AND pending < 20000 / (SELECT count(*) FROM webhooks WHERE workspace_id = NEW.workspace_id AND enabled)
        AND (types = '' OR instr(types, ',' || NEW.type || ',') > 0);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER delivery_added AFTER INSERT ON webhook_deliveries WHEN NEW.state = 'pending' BEGIN
    UPDATE webhooks SET pending = pending + 1 WHERE id = NEW.webhook_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER delivery_changed AFTER UPDATE OF state ON webhook_deliveries WHEN (NEW.state = 'pending') <> (OLD.state = 'pending') BEGIN
    UPDATE webhooks SET pending = pending + CASE WHEN NEW.state = 'pending' THEN 1 ELSE -1 END WHERE id = NEW.webhook_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER delivery_deleted AFTER DELETE ON webhook_deliveries WHEN OLD.state = 'pending' BEGIN
    UPDATE webhooks SET pending = pending - 1 WHERE id = OLD.webhook_id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER workspace_webhooks AFTER UPDATE OF deleting_at ON workspaces WHEN NEW.deleting_at > 0 BEGIN
    DELETE FROM webhooks WHERE workspace_id = NEW.id;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER workspace_webhooks;
DROP TRIGGER event_webhooks;
DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
