-- Executions. Their output is in files, named by the ids of the streams.

-- +goose Up
CREATE TABLE executions (
    id               TEXT   NOT NULL PRIMARY KEY,
    sandbox_id       TEXT   NOT NULL, -- no reference: whoever forgets an execution removes its streams first
    workspace_id     TEXT   NOT NULL,
    kind             TEXT   NOT NULL,
    argv             TEXT   NOT NULL, -- JSON array
    state            TEXT   NOT NULL,
    exit_code        BIGINT,          -- NULL when not known
    error            TEXT   NOT NULL DEFAULT '',
    tty              BIGINT NOT NULL DEFAULT 0,
    one_shot         BIGINT NOT NULL DEFAULT 0,
    cancel           TEXT   NOT NULL DEFAULT '',
    stdin            TEXT   NOT NULL DEFAULT '',
    stdout           TEXT   NOT NULL,
    stdout_off       BIGINT NOT NULL DEFAULT 0,
    stdout_bytes     BIGINT NOT NULL DEFAULT 0,
    stdout_truncated BIGINT NOT NULL DEFAULT 0,
    stderr           TEXT   NOT NULL,
    stderr_off       BIGINT NOT NULL DEFAULT 0,
    stderr_bytes     BIGINT NOT NULL DEFAULT 0,
    stderr_truncated BIGINT NOT NULL DEFAULT 0,
    created_by       TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    started_at       BIGINT NOT NULL DEFAULT 0,
    ended_at         BIGINT NOT NULL DEFAULT 0,
    duration         BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX executions_sandbox ON executions (sandbox_id, created_at, id);
CREATE INDEX executions_live ON executions (sandbox_id) WHERE state IN ('queued', 'running');
CREATE INDEX executions_ended ON executions (ended_at) WHERE ended_at > 0;

-- +goose Down
DROP TABLE executions;
