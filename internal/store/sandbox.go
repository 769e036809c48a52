package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	sandboxColumns = `id, workspace_id, name, host_label, state, cause_code, cause_message, image, image_digest, env, labels,
		memory_bytes, cpu_milli, disk_bytes, readiness_port, ttl, created_by,
		created_at, updated_at, started_at, ended_at, handle,
		idle_timeout, paused_timeout, execution_timeout, on_idle, description, metadata, parent_id, saved, paused_at, last_activity_at,
		network_enabled, ports, snapshot_id, memory_lost,
		apt_packages, npm_packages, pip_packages, image_id, registry_id, saved_bytes, url_access, checkpoint_interval, last_checkpoint_at, ttl_from,
		network_rules, files_only, archived_at`
	// isLive and isNamed repeat the conditions of the indexes sandboxes_live_page and
	// sandboxes_live_name word for word, so that SQLite uses the indexes. At most one sandbox
	// of a workspace with a given name meets isNamed.
	isLive  = "state NOT IN ('destroyed', 'failed')"
	isNamed = "state NOT IN ('destroyed', 'failed', 'destroying')"
)

// Sandboxes are the sandboxes with their events.
type Sandboxes struct {
	db *database.DB
	sealer
	owner *sandbox.Ownership // of shards
}

// Owned returns the sandboxes as the owner of some ranges of shards sees them: LiveSandboxes, LiveStates and Purge know the sandboxes of
// these ranges alone, the owner of the first range purges the rows of no sandbox, and writes of
// sandboxes of other ranges fail with Unavailable. All other reads know all sandboxes. The ranges may change between two transactions.
func (s *Sandboxes) Owned(owner *sandbox.Ownership) *Sandboxes {
	owned := *s
	owned.owner = owner
	return &owned
}

// Owns reports whether a sandbox is in the owner's shards.
func (s *Sandboxes) Owns(id sandbox.ID) bool { return s.owner.Ranges().Has(id) }

// Alone reports whether all sandboxes are in the owner's shards.
func (s *Sandboxes) Alone() bool { return s.owner.Ranges() == sandbox.AllRanges }

// write is [database.DB.Write] of a sandbox. Errors: Unavailable for a sandbox of another owner, also if it was this server's when the write
// began to wait.
func (s *Sandboxes) write(ctx context.Context, id sandbox.ID, f func(context.Context, *sql.Tx) error) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.owner.Check(id); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// inRanges is the condition of rows of ranges of shards, whose digits are the argument.
const inRanges = "$1 LIKE '%' || substr(id, 35, 1) || '%'"

// within adds the shards of the owner to a condition, and returns the arguments of both. The owner of all shards adds nothing.
func (s *Sandboxes) within(condition string) (query string, args []any) {
	ranges := s.owner.Ranges()
	if ranges == sandbox.AllRanges {
		return condition, nil
	}
	return inRanges + " AND " + condition, []any{ranges.Digits()}
}

// SandboxByID returns a sandbox in any state. Errors: NotFound.
func (s *Sandboxes) SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	row, err := sandboxRowByID(ctx, s.db.Reader(), id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.open(row)
}

// sandboxRowByID returns the row of a sandbox in any state. Errors: NotFound.
func sandboxRowByID(ctx context.Context, q database.Querier, id sandbox.ID) (sandboxRow, error) {
	row, err := scanSandboxRow(q.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE id = $1", id))
	return row, readError(err)
}

// SandboxByName returns the live sandbox of that name in the workspace, else the newest
// sandbox of that name that has ended or is being destroyed. Errors: NotFound.
func (s *Sandboxes) SandboxByName(ctx context.Context, ws sandbox.WorkspaceID, name string) (sandbox.Sandbox, error) {
	sb, err := s.one(s.db.Reader().QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE workspace_id = $1 AND name = $2 AND "+isNamed, ws, name))
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return sb, err
	}
	return s.one(s.db.Reader().QueryRowContext(ctx, "SELECT "+sandboxColumns+` FROM sandboxes WHERE workspace_id = $1 AND name = $2
		ORDER BY created_at DESC, id DESC LIMIT 1`, ws, name))
}

// SandboxByLabel returns the sandbox with that host label, in any state. Errors: NotFound.
func (s *Sandboxes) SandboxByLabel(ctx context.Context, label string) (sandbox.Sandbox, error) {
	return s.one(s.db.Reader().QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE host_label = $1", label))
}

// LiveSandboxes returns every sandbox of the owner's shards that has not ended.
func (s *Sandboxes) LiveSandboxes(ctx context.Context) ([]sandbox.Sandbox, error) {
	where, args := s.within(isLive)
	return s.querySandboxes(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE "+where, args...)
}

// LiveStates returns the state of every sandbox of the owner's shards that has not ended.
func (s *Sandboxes) LiveStates(ctx context.Context) (map[sandbox.ID]sandbox.State, error) {
	where, args := s.within(isLive)
	states := map[sandbox.ID]sandbox.State{}
	_, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (none struct{}, err error) {
		var id sandbox.ID
		var state sandbox.State
		err = row.Scan(&id, &state)
		states[id] = state
		return none, err
	}, "SELECT id, state FROM sandboxes WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list the states of live sandboxes: %w", err)
	}
	return states, nil
}

// Purge deletes the rows of sandboxes of the owner's shards that ended before endedBefore, with their events. For the owner of
// the first range it also deletes snapshots that were deleted before it, unless a sandbox or a later snapshot names them as
// their origin, and idempotency keys that expired before now. It deletes at most limit rows
// of each, so that other writes get their turn, and returns the number of deleted sandboxes
// and snapshots. With a zero endedBefore it deletes only idempotency keys.
func (s *Sandboxes) Purge(ctx context.Context, now, endedBefore time.Time, limit int) (n int64, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		n = 0
		first := s.owner.Ranges().HasRange(0)
		if first {
			err = purgeKeys(ctx, tx, now, limit)
		}
		if err != nil || endedBefore.IsZero() {
			return err
		}
		if n, err = s.purgeEnded(ctx, tx, endedBefore, limit); err != nil || !first {
			return err
		}
		snapshots, err := purgeSnapshots(ctx, tx, endedBefore, limit)
		n += snapshots
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return n, nil
}

// purgeKeys deletes idempotency keys that expired before now, and digests that were released long ago.
func purgeKeys(ctx context.Context, tx *sql.Tx, now time.Time, limit int) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM idempotency_keys WHERE (workspace_id, idempotency_key) IN
		(SELECT workspace_id, idempotency_key FROM idempotency_keys WHERE expires_at < $1 LIMIT $2)`, database.Nanos(now), limit)
	if err != nil {
		return err
	}
	return purgeReleased(ctx, tx, now)
}

// purgeEnded deletes sandboxes of the owner's shards that ended before a time, and returns their number.
func (s *Sandboxes) purgeEnded(ctx context.Context, tx *sql.Tx, before time.Time, limit int) (int64, error) {
	where, args := s.within("ended_at > 0")
	args = append(args, database.Nanos(before), limit)
	return database.Changed(tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE %s AND ended_at < $%d LIMIT $%d)",
		where, len(args)-1, len(args)), args...))
}

func (s *Sandboxes) querySandboxes(ctx context.Context, query string, args ...any) ([]sandbox.Sandbox, error) {
	sbs, err := database.Collect(ctx, s.db.Reader(), s.scanSandbox, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return sbs, nil
}

// one reads the only row of a query.
func (s *Sandboxes) one(row *sql.Row) (sandbox.Sandbox, error) {
	sb, err := s.scanSandbox(row)
	return sb, readError(err)
}

// readError is the error of a read of one sandbox.
func readError(err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")
	case err != nil:
		return fmt.Errorf("read sandbox: %w", err)
	}
	return nil
}

// scanSandbox reads sandboxColumns and decrypts the variables, so it is not for transactions.
func (s *Sandboxes) scanSandbox(row database.Scanner) (sandbox.Sandbox, error) {
	r, err := scanSandboxRow(row)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.open(r)
}

// sandboxRow is a sandbox whose variables are still encrypted.
type sandboxRow struct {
	sandbox.Sandbox
	env string
}

// open decrypts the variables of a row. Errors: Unavailable if the key is missing.
func (s *Sandboxes) open(row sandboxRow) (sandbox.Sandbox, error) {
	env, err := s.unsealEnv(row.env, string(row.ID))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	row.Env = env
	return row.Sandbox, nil
}

// scanSandboxRow reads sandboxColumns.
func scanSandboxRow(row database.Scanner) (sandboxRow, error) {
	var sb sandbox.Sandbox
	var cause sandbox.Cause
	var env, labels, metadata, ports, rules, apt, npm, pip string
	var created, updated, started, ended, paused, activity, checkpoint, ttlFrom, archived int64
	err := row.Scan(&sb.ID, &sb.Workspace, &sb.Name, &sb.HostLabel, &sb.State, &cause.Code, &cause.Message, &sb.Image, &sb.ImageDigest,
		&env, &labels, &sb.Resources.MemoryBytes, &sb.Resources.CPUMilli, &sb.Resources.DiskBytes, &sb.ReadinessPort, &sb.TTL, &sb.CreatedBy,
		&created, &updated, &started, &ended, &sb.Handle,
		&sb.Timeouts.Idle, &sb.Timeouts.Paused, &sb.Timeouts.Execution, &sb.Timeouts.OnIdle, &sb.Description, &metadata,
		&sb.Parent, &sb.Saved, &paused, &activity, &sb.Network.Enabled, &ports, &sb.Snapshot, &sb.MemoryLost,
		&apt, &npm, &pip, &sb.ImageID, &sb.Registry, &sb.SavedBytes, &sb.URLAccess, &sb.CheckpointInterval, &checkpoint, &ttlFrom, &rules, &sb.FilesOnly, &archived)
	if err != nil {
		return sandboxRow{}, err
	}
	if cause.Code != "" {
		sb.Cause = &cause
	}
	if sb.Labels, err = unmarshalMap(labels); err != nil {
		return sandboxRow{}, fmt.Errorf("labels of %s: %w", sb.ID, err)
	}
	if sb.Metadata, err = unmarshalMap(metadata); err != nil {
		return sandboxRow{}, fmt.Errorf("metadata of %s: %w", sb.ID, err)
	}
	if err := unmarshalPorts(ports, &sb); err != nil {
		return sandboxRow{}, fmt.Errorf("ports of %s: %w", sb.ID, err)
	}
	if err := unmarshalRules(rules, &sb.Network); err != nil {
		return sandboxRow{}, fmt.Errorf("network_rules of %s: %w", sb.ID, err)
	}
	if sb.AptPackages, err = unmarshalStrings(apt); err != nil {
		return sandboxRow{}, fmt.Errorf("apt_packages of %s: %w", sb.ID, err)
	}
	if sb.NpmPackages, err = unmarshalStrings(npm); err != nil {
		return sandboxRow{}, fmt.Errorf("npm_packages of %s: %w", sb.ID, err)
	}
	if sb.PipPackages, err = unmarshalStrings(pip); err != nil {
		return sandboxRow{}, fmt.Errorf("pip_packages of %s: %w", sb.ID, err)
	}
	sb.PausedAt, sb.LastActivityAt, sb.LastCheckpointAt, sb.TTLFrom = database.FromNanos(paused), database.FromNanos(activity), database.FromNanos(checkpoint), database.FromNanos(ttlFrom)
	sb.CreatedAt, sb.UpdatedAt, sb.ArchivedAt = database.FromNanos(created), database.FromNanos(updated), database.FromNanos(archived)
	sb.StartedAt, sb.EndedAt = database.FromNanos(started), database.FromNanos(ended)
	return sandboxRow{sb, env}, nil
}

// marshalMap encodes m as a JSON object; nil gives an empty object.
func marshalMap(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// unmarshalMap reverses marshalMap; an empty object is nil.
func unmarshalMap(s string) (map[string]string, error) {
	if s == "{}" {
		return nil, nil
	}
	var m map[string]string
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return nil, errors.New("damaged JSON") // without the text: it may be secret
	}
	return m, nil
}

// marshalStrings encodes a list as a JSON array; nil gives an empty array.
func marshalStrings(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(list) // strings have a JSON form
	return string(b)
}

// unmarshalStrings reverses marshalStrings; an empty array is nil.
func unmarshalStrings(s string) ([]string, error) {
	if s == "[]" {
		return nil, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return nil, errors.New("damaged JSON")
	}
	return list, nil
}
