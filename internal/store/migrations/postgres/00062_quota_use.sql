-- The use of quotas by sandboxes and their checkpoints, summed up by triggers: a create does not read the rows of all live
-- sandboxes. The row '' has the sums of all workspaces.

-- +goose Up
CREATE TABLE quota_use (
    workspace_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandboxes BIGINT NOT NULL DEFAULT 0, -- that start or run; the next three are their limits
    memory_bytes BIGINT NOT NULL DEFAULT 0,
    cpu_milli BIGINT NOT NULL DEFAULT 0,
    disk_bytes BIGINT NOT NULL DEFAULT 0,
    paused_bytes BIGINT NOT NULL DEFAULT 0,
    checkpoint_bytes BIGINT NOT NULL DEFAULT 0 -- of live sandboxes
);
INSERT INTO quota_use (workspace_id) SELECT id FROM workspaces UNION ALL SELECT '';
UPDATE quota_use SET sandboxes = s.sandboxes, memory_bytes = s.memory_bytes, cpu_milli = s.cpu_milli, disk_bytes = s.disk_bytes, paused_bytes = s.paused_bytes
    FROM (SELECT workspace_id AS id, count(*) FILTER (WHERE state <> 'paused') AS sandboxes, coalesce(sum(memory_bytes) FILTER (WHERE state <> 'paused'), 0) AS memory_bytes,
            coalesce(sum(cpu_milli) FILTER (WHERE state <> 'paused'), 0) AS cpu_milli, coalesce(sum(disk_bytes) FILTER (WHERE state <> 'paused'), 0) AS disk_bytes,
            coalesce(sum(CASE WHEN saved_bytes > 0 THEN saved_bytes ELSE disk_bytes END) FILTER (WHERE state = 'paused'), 0) AS paused_bytes
        FROM sandboxes WHERE state NOT IN ('destroying', 'destroyed', 'failed') GROUP BY workspace_id) s WHERE quota_use.workspace_id = s.id;
UPDATE quota_use SET checkpoint_bytes = c.size_bytes
    FROM (SELECT s.workspace_id AS id, sum(size_bytes) AS size_bytes FROM sandboxes s JOIN checkpoints ON sandbox_id = s.id
        WHERE state NOT IN ('destroyed', 'failed') GROUP BY s.workspace_id) c WHERE quota_use.workspace_id = c.id;
UPDATE quota_use SET sandboxes = s.sandboxes, memory_bytes = s.memory_bytes, cpu_milli = s.cpu_milli, disk_bytes = s.disk_bytes, paused_bytes = s.paused_bytes,
        checkpoint_bytes = s.checkpoint_bytes
    FROM (SELECT sum(sandboxes) AS sandboxes, sum(memory_bytes) AS memory_bytes, sum(cpu_milli) AS cpu_milli, sum(disk_bytes) AS disk_bytes,
            sum(paused_bytes) AS paused_bytes, sum(checkpoint_bytes) AS checkpoint_bytes FROM quota_use) s WHERE quota_use.workspace_id = '';

-- +goose StatementBegin
CREATE FUNCTION count_use(s sandboxes, sign BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF s.state = 'paused' THEN
        UPDATE quota_use SET paused_bytes = paused_bytes + sign * CASE WHEN s.saved_bytes > 0 THEN s.saved_bytes ELSE s.disk_bytes END
            WHERE workspace_id IN (s.workspace_id, '');
    ELSIF s.state NOT IN ('destroying', 'destroyed', 'failed') THEN
        UPDATE quota_use SET sandboxes = sandboxes + sign, memory_bytes = memory_bytes + sign * s.memory_bytes,
                cpu_milli = cpu_milli + sign * s.cpu_milli, disk_bytes = disk_bytes + sign * s.disk_bytes
            WHERE workspace_id IN (s.workspace_id, '');
    END IF;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION use_of_workspace() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO quota_use (workspace_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_workspace AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION use_of_workspace();

-- +goose StatementBegin
CREATE FUNCTION use_of_deleted_workspace() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM quota_use WHERE workspace_id = OLD.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_deleted_workspace AFTER DELETE ON workspaces FOR EACH ROW EXECUTE FUNCTION use_of_deleted_workspace();

-- +goose StatementBegin
CREATE FUNCTION use_of_sandbox() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_use(NEW, 1);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_sandbox AFTER INSERT ON sandboxes FOR EACH ROW EXECUTE FUNCTION use_of_sandbox();

-- +goose StatementBegin
CREATE FUNCTION use_of_changed_sandbox() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_use(OLD, -1);
    PERFORM count_use(NEW, 1);
    IF OLD.state NOT IN ('destroyed', 'failed') AND NEW.state IN ('destroyed', 'failed') THEN
        UPDATE quota_use SET checkpoint_bytes = checkpoint_bytes - (SELECT coalesce(sum(size_bytes), 0) FROM checkpoints WHERE sandbox_id = OLD.id)
            WHERE workspace_id IN (OLD.workspace_id, '');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_changed_sandbox AFTER UPDATE OF state, saved_bytes, memory_bytes, cpu_milli, disk_bytes ON sandboxes FOR EACH ROW WHEN (
    OLD.state <> NEW.state AND (OLD.state IN ('paused', 'destroying', 'destroyed', 'failed') OR NEW.state IN ('paused', 'destroying', 'destroyed', 'failed'))
    OR OLD.saved_bytes <> NEW.saved_bytes OR OLD.memory_bytes <> NEW.memory_bytes OR OLD.cpu_milli <> NEW.cpu_milli OR OLD.disk_bytes <> NEW.disk_bytes) EXECUTE FUNCTION use_of_changed_sandbox();

-- +goose StatementBegin
CREATE FUNCTION use_of_deleted_sandbox() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_use(OLD, -1);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_deleted_sandbox AFTER DELETE ON sandboxes FOR EACH ROW EXECUTE FUNCTION use_of_deleted_sandbox();

-- +goose StatementBegin
CREATE FUNCTION use_of_checkpoint() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE quota_use SET checkpoint_bytes = checkpoint_bytes + NEW.size_bytes FROM sandboxes s
        WHERE s.id = NEW.sandbox_id AND s.state NOT IN ('destroyed', 'failed') AND quota_use.workspace_id IN (s.workspace_id, '');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_checkpoint AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION use_of_checkpoint();

-- +goose StatementBegin
CREATE FUNCTION use_of_deleted_checkpoint() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    UPDATE quota_use SET checkpoint_bytes = checkpoint_bytes - OLD.size_bytes FROM sandboxes s
        WHERE s.id = OLD.sandbox_id AND s.state NOT IN ('destroyed', 'failed') AND quota_use.workspace_id IN (s.workspace_id, '');
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER use_of_deleted_checkpoint AFTER DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION use_of_deleted_checkpoint();

-- The index for these sums made each change of a state more expensive.
DROP INDEX sandboxes_quota;
-- Of one name, without reading the other live sandboxes.
CREATE INDEX sandboxes_live_names ON sandboxes (workspace_id, name, created_at, id) WHERE state NOT IN ('destroyed', 'failed');

-- +goose Down
DROP INDEX sandboxes_live_names;
CREATE INDEX sandboxes_quota ON sandboxes (workspace_id, state, memory_bytes, cpu_milli, disk_bytes, saved_bytes) WHERE state NOT IN ('destroyed', 'failed');
DROP TRIGGER use_of_workspace ON workspaces;
DROP FUNCTION use_of_workspace;
DROP TRIGGER use_of_deleted_workspace ON workspaces;
DROP FUNCTION use_of_deleted_workspace;
DROP TRIGGER use_of_sandbox ON sandboxes;
DROP FUNCTION use_of_sandbox;
DROP TRIGGER use_of_changed_sandbox ON sandboxes;
DROP FUNCTION use_of_changed_sandbox;
DROP TRIGGER use_of_deleted_sandbox ON sandboxes;
DROP FUNCTION use_of_deleted_sandbox;
DROP TRIGGER use_of_checkpoint ON checkpoints;
DROP FUNCTION use_of_checkpoint;
DROP TRIGGER use_of_deleted_checkpoint ON checkpoints;
DROP FUNCTION use_of_deleted_checkpoint;
DROP FUNCTION count_use;
DROP TABLE quota_use;
