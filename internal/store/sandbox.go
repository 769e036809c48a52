package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	sandboxColumns = `id, workspace_id, name, host_label, state, cause_code, cause_message, image, image_digest, env, labels,
		memory_bytes, cpu_milli, disk_bytes, readiness_port, ttl, created_by,
		created_at, updated_at, started_at, ended_at, handle,
		idle_timeout, paused_timeout, execution_timeout, on_idle, description, metadata, parent_id, saved, paused_at, last_activity_at,
		network_enabled, ports, snapshot_id, memory_lost,
		apt_packages, npm_packages, pip_packages, image_id, registry_id, saved_bytes, url_access, checkpoint_interval, last_checkpoint_at, ttl_from`
	// isLive and isNamed repeat the conditions of the indexes sandboxes_quota and
	// sandboxes_live_name word for word, so that SQLite uses the indexes. At most one sandbox
	// of a workspace with a given name meets isNamed.
	isLive  = "state NOT IN ('destroyed', 'failed')"
	isNamed = "state NOT IN ('destroyed', 'failed', 'destroying')"
)

// Sandboxes are the sandboxes with their events.
type Sandboxes struct {
	db *database.DB
	sealer
}

// CreateSandbox records a new sandbox with its event and idempotency key in one transaction.
// If an unexpired use of the same idempotency key has a sandbox, or else if a live sandbox
// of the workspace has the same name, CreateSandbox returns that sandbox instead. If c
// replaces the sandbox of the same name, CreateSandbox also records the end of the old
// sandbox, whose resources count as free for the new one.
//
// Errors: QuotaExceeded, with nothing recorded, if the quota of the workspace or the
// capacity of the installation is too small.
func (s *Sandboxes) CreateSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (rec sandbox.Recorded, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if rec, err = s.findExisting(ctx, tx, c); err != nil {
			return err
		}
		var gone *sandbox.Sandbox
		if c.Replaces != nil && rec.By == sandbox.MatchName {
			gone = &rec.Sandbox
		}
		if rec.By != sandbox.MatchNone && gone == nil {
			return nil
		}
		if err := admit(ctx, tx, c.Sandbox.Workspace, c.Sandbox.Resources, 1, a, gone); err != nil {
			return err
		}
		dying := rec.Dying
		if gone != nil {
			end := moved(sandbox.Destroying, func(sb *sandbox.Sandbox) { sb.Cause = &c.Replaces.Cause }, c.Replaces.Event)
			if err := updateSandbox(ctx, tx, gone, end, &c.Replaces.Event); err != nil {
				return err
			}
			ended := *gone
			dying = &ended
		}
		rec = sandbox.Recorded{Sandbox: c.Sandbox, RequestHash: c.RequestHash, Dying: dying}
		return s.insertSandbox(ctx, tx, c)
	})
	if err != nil {
		return sandbox.Recorded{}, fmt.Errorf("record sandbox %s: %w", c.Sandbox.ID, err)
	}
	return rec, nil
}

// CreateForks records the children of a fork and their events in one transaction. The
// children have the same workspace and the same resources. For a child whose name a live
// sandbox has, CreateForks returns that sandbox instead.
//
// Errors: QuotaExceeded, with nothing recorded, unless the quota allows all new children.
func (s *Sandboxes) CreateForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) (recs []sandbox.Recorded, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		recs = make([]sandbox.Recorded, len(children))
		n := 0
		for i, c := range children {
			if recs[i], err = s.findExisting(ctx, tx, c); err != nil {
				return err
			}
			if recs[i].By == sandbox.MatchNone {
				n++
			}
		}
		if n == 0 {
			return nil
		}
		if err := admit(ctx, tx, children[0].Sandbox.Workspace, children[0].Sandbox.Resources, n, a, nil); err != nil {
			return err
		}
		for i, c := range children {
			if recs[i].By != sandbox.MatchNone {
				continue
			}
			recs[i] = sandbox.Recorded{Sandbox: c.Sandbox, RequestHash: c.RequestHash}
			if err := s.insertSandbox(ctx, tx, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("record %d forks: %w", len(children), err)
	}
	return recs, nil
}

// findExisting returns the sandbox that an earlier equal request created, or else a sandbox
// of the same name that is being destroyed.
func (s *Sandboxes) findExisting(ctx context.Context, tx *sql.Tx, c sandbox.Creation) (sandbox.Recorded, error) {
	ws := c.Sandbox.Workspace
	if c.IdempotencyKey != "" {
		rec, err := s.scanRecorded(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+`, request_hash FROM sandboxes WHERE id =
			(SELECT sandbox_id FROM idempotency_keys WHERE workspace_id = $1 AND idempotency_key = $2 AND expires_at > $3)`,
			ws, c.IdempotencyKey, database.Nanos(c.Sandbox.CreatedAt)))
		if err == nil {
			rec.By = sandbox.MatchKey
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return rec, err
		}
	}
	rec, err := s.scanRecorded(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+", request_hash FROM sandboxes WHERE workspace_id = $1 AND name = $2 AND "+isNamed,
		ws, c.Sandbox.Name))
	if !errors.Is(err, sql.ErrNoRows) {
		rec.By = sandbox.MatchName
		return rec, err
	}
	dying, err := s.scanSandbox(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE workspace_id = $1 AND state = 'destroying' AND name = $2 AND "+isLive+
		" ORDER BY created_at DESC LIMIT 1", ws, c.Sandbox.Name))
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Recorded{}, nil
	}
	return sandbox.Recorded{Dying: &dying}, err
}

func (s *Sandboxes) insertSandbox(ctx context.Context, tx *sql.Tx, c sandbox.Creation) error {
	sb := &c.Sandbox
	env, err := s.sealEnv(sb.Env, string(sb.ID))
	if err != nil {
		return err
	}
	hash := c.RequestHash
	if len(sb.Env) > 0 { // a hash of the request would allow guesses at the variables
		if hash, err = s.sealText(hash, "request_hash", string(sb.ID)); err != nil {
			return err
		}
	}
	labels, err := marshalMap(sb.Labels)
	if err != nil {
		return err
	}
	metadata, err := marshalMap(sb.Metadata)
	if err != nil {
		return err
	}
	ports, err := marshalPorts(sb.Published)
	if err != nil {
		return err
	}
	apt, npm, pip := marshalStrings(sb.AptPackages), marshalStrings(sb.NpmPackages), marshalStrings(sb.PipPackages)
	if _, err := tx.ExecContext(ctx, `INSERT INTO sandboxes (id, workspace_id, name, host_label, state, image, image_digest,
			env, labels, memory_bytes, cpu_milli, disk_bytes, readiness_port, ttl, created_by, created_at, updated_at, request_hash,
			idle_timeout, paused_timeout, execution_timeout, on_idle, description, metadata, parent_id, last_activity_at,
			network_enabled, ports, snapshot_id, handle, apt_packages, npm_packages, pip_packages, image_id, registry_id, url_access, checkpoint_interval)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37)`,
		sb.ID, sb.Workspace, sb.Name, sb.HostLabel, sb.State, sb.Image, sb.ImageDigest,
		env, labels, sb.Resources.MemoryBytes, sb.Resources.CPUMilli, sb.Resources.DiskBytes, int64(sb.ReadinessPort),
		int64(sb.TTL), sb.CreatedBy, database.Nanos(sb.CreatedAt), database.Nanos(sb.UpdatedAt), hash,
		int64(sb.Timeouts.Idle), int64(sb.Timeouts.Paused), int64(sb.Timeouts.Execution), sb.Timeouts.OnIdle,
		sb.Description, metadata, sb.Parent, database.Nanos(sb.LastActivityAt), database.Number(sb.Network.Enabled), ports, sb.Snapshot, sb.Handle, apt, npm, pip, sb.ImageID, sb.Registry, sb.URLAccess, int64(sb.CheckpointInterval)); err != nil {
		return err
	}
	for label, value := range sb.Labels {
		if _, err := tx.ExecContext(ctx, "INSERT INTO sandbox_labels (sandbox_id, label, value) VALUES ($1, $2, $3)",
			sb.ID, label, value); err != nil {
			return err
		}
	}
	if c.IdempotencyKey != "" {
		// An expired use of the key is replaced; an unexpired one was found before.
		if _, err := tx.ExecContext(ctx, `INSERT INTO idempotency_keys (workspace_id, idempotency_key, sandbox_id, expires_at)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (workspace_id, idempotency_key) DO UPDATE SET sandbox_id = excluded.sandbox_id, expires_at = excluded.expires_at`,
			sb.Workspace, c.IdempotencyKey, sb.ID, database.Nanos(sb.CreatedAt.Add(c.KeyLifetime))); err != nil {
			return err
		}
	}
	return insertEvent(ctx, tx, sb.ID, c.Event)
}

// Transition moves a sandbox from one state to the other and appends ev, in one
// transaction. When mutate is set it may change the row's Cause, ImageDigest,
// Handle, Saved, SavedBytes, StartedAt, PausedAt, MemoryLost, LastActivityAt and EndedAt; other fields
// never change. The checkpoints and variables of a sandbox that ends are forgotten. UpdatedAt becomes
// ev's time. It returns the row as written.
//
// Errors: NotFound; Conflict, with nothing written, when the sandbox is not in
// state from or the move is not legal.
func (s *Sandboxes) Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) (sandbox.Sandbox, error) {
	if err := sandbox.CheckTransition(from, to); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.update(ctx, id, from, moved(to, mutate, ev), &ev, nil)
}

// ResumeSandbox is [Sandboxes.Transition] of a paused sandbox to resuming, unless the
// quota of its workspace or the capacity of the installation is too small: then nothing is
// recorded. Errors: NotFound; Conflict if it is not paused; QuotaExceeded.
func (s *Sandboxes) ResumeSandbox(ctx context.Context, id sandbox.ID, mutate func(*sandbox.Sandbox), ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error) {
	return s.update(ctx, id, sandbox.Paused, moved(sandbox.Resuming, mutate, ev), &ev, &a)
}

// moved changes a row as [Sandboxes.Transition] does.
func moved(to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) func(*sandbox.Sandbox) {
	return func(sb *sandbox.Sandbox) {
		if mutate != nil {
			mutate(sb)
		}
		sb.State = to
		sb.UpdatedAt = ev.Time
	}
}

// SetBox records the digest of a provisioning sandbox's root filesystem and the driver's
// handle.
//
// Errors: NotFound; Conflict if the sandbox is not provisioning any more.
func (s *Sandboxes) SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sandbox.Sandbox, error) {
	return s.update(ctx, id, sandbox.Provisioning, func(sb *sandbox.Sandbox) {
		sb.ImageDigest, sb.Handle = digest, handle
	}, nil, nil)
}

// update changes a row that is in state from. Unless a is nil, it first checks that the quota allows the sandbox.
func (s *Sandboxes) update(ctx context.Context, id sandbox.ID, from sandbox.State, change func(*sandbox.Sandbox), ev *sandbox.Event, a *quota.Admission) (sb sandbox.Sandbox, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if sb, err = s.sandboxByID(ctx, tx, id); err != nil {
			return err
		}
		if sb.State != from {
			return sandbox.Errorf(sandbox.Conflict, "the sandbox is %s, not %s any more", sb.State, from)
		}
		if a != nil {
			if err := admit(ctx, tx, sb.Workspace, sb.Resources, 1, *a, &sb); err != nil {
				return err
			}
		}
		return updateSandbox(ctx, tx, &sb, change, ev)
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("update sandbox %s: %w", id, err)
	}
	return sb, nil
}

// updateSandbox changes sb, which was read in the transaction, and its row.
func updateSandbox(ctx context.Context, tx *sql.Tx, sb *sandbox.Sandbox, change func(*sandbox.Sandbox), ev *sandbox.Event) error {
	from := sb.State
	change(sb)
	if sb.State.Ended() {
		sb.Env = nil // an ended sandbox does not need its secrets
	}
	var cause sandbox.Cause
	if sb.Cause != nil {
		cause = *sb.Cause
	}
	// The condition on the state makes this a compare-and-set, also on a database whose
	// transactions do not exclude each other.
	res, err := tx.ExecContext(ctx, `UPDATE sandboxes SET state = $1, cause_code = $2, cause_message = $3, image_digest = $4,
			handle = $5, updated_at = $6, started_at = $7, ended_at = $8, saved = $9, paused_at = $10, last_activity_at = $11,
			memory_lost = $12, saved_bytes = $13, env = CASE WHEN $16 THEN '{}' ELSE env END
		WHERE id = $14 AND state = $15`,
		sb.State, cause.Code, cause.Message, sb.ImageDigest, sb.Handle,
		database.Nanos(sb.UpdatedAt), database.Nanos(sb.StartedAt), database.Nanos(sb.EndedAt), sb.Saved, database.Nanos(sb.PausedAt), database.Nanos(sb.LastActivityAt),
		sb.MemoryLost, sb.SavedBytes, sb.ID, from, sb.State.Ended())
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return sandbox.Wrap(sandbox.Conflict, err, "the sandbox is not %s any more", from)
	}
	if sb.State.Ended() {
		if _, err := tx.ExecContext(ctx, "DELETE FROM checkpoints WHERE sandbox_id = $1", sb.ID); err != nil {
			return err
		}
	}
	if ev == nil {
		return nil
	}
	return insertEvent(ctx, tx, sb.ID, *ev)
}

// SandboxByID returns a sandbox in any state. Errors: NotFound.
func (s *Sandboxes) SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return s.sandboxByID(ctx, s.db.Reader(), id)
}

func (s *Sandboxes) sandboxByID(ctx context.Context, q database.Querier, id sandbox.ID) (sandbox.Sandbox, error) {
	return s.one(q.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE id = $1", id))
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

// LiveSandboxes returns every sandbox of the installation that has not ended.
func (s *Sandboxes) LiveSandboxes(ctx context.Context) ([]sandbox.Sandbox, error) {
	return s.querySandboxes(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE "+isLive)
}

// Purge deletes the rows of sandboxes that ended before endedBefore, with their events; of
// snapshots that were deleted before it, unless a sandbox or a later snapshot names them as
// its origin; and of idempotency keys that expired before now. It deletes at most limit rows
// of each, so that other writes get their turn, and returns the number of deleted sandboxes
// and snapshots. With a zero endedBefore it deletes only idempotency keys.
func (s *Sandboxes) Purge(ctx context.Context, now, endedBefore time.Time, limit int) (n int64, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM idempotency_keys WHERE (workspace_id, idempotency_key) IN
			(SELECT workspace_id, idempotency_key FROM idempotency_keys WHERE expires_at < $1 LIMIT $2)`, database.Nanos(now), limit)
		if err == nil {
			err = purgeReleased(ctx, tx, now)
		}
		if err != nil || endedBefore.IsZero() {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE id IN
			(SELECT id FROM sandboxes WHERE ended_at > 0 AND ended_at < $1 LIMIT $2)`, database.Nanos(endedBefore), limit)
		if err != nil {
			return err
		}
		if n, err = res.RowsAffected(); err != nil {
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
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("read sandbox: %w", err)
	}
	return sb, nil
}

// scanRecorded reads sandboxColumns and request_hash.
func (s *Sandboxes) scanRecorded(row database.Scanner) (sandbox.Recorded, error) {
	var rec sandbox.Recorded
	sb, err := s.scanSandbox(scannerFunc(func(dest ...any) error { return row.Scan(append(dest, &rec.RequestHash)...) }))
	if err != nil {
		return rec, err
	}
	rec.Sandbox = sb
	rec.RequestHash, err = s.unsealText(rec.RequestHash, "request_hash", string(sb.ID))
	return rec, err
}

type scannerFunc func(dest ...any) error

func (f scannerFunc) Scan(dest ...any) error { return f(dest...) }

// scanSandbox reads sandboxColumns.
func (s *Sandboxes) scanSandbox(row database.Scanner) (sandbox.Sandbox, error) {
	var sb sandbox.Sandbox
	var cause sandbox.Cause
	var env, labels, metadata, ports, apt, npm, pip string
	var created, updated, started, ended, paused, activity, checkpoint, ttlFrom int64
	err := row.Scan(&sb.ID, &sb.Workspace, &sb.Name, &sb.HostLabel, &sb.State, &cause.Code, &cause.Message, &sb.Image, &sb.ImageDigest,
		&env, &labels, &sb.Resources.MemoryBytes, &sb.Resources.CPUMilli, &sb.Resources.DiskBytes, &sb.ReadinessPort, &sb.TTL, &sb.CreatedBy,
		&created, &updated, &started, &ended, &sb.Handle,
		&sb.Timeouts.Idle, &sb.Timeouts.Paused, &sb.Timeouts.Execution, &sb.Timeouts.OnIdle, &sb.Description, &metadata,
		&sb.Parent, &sb.Saved, &paused, &activity, &sb.Network.Enabled, &ports, &sb.Snapshot, &sb.MemoryLost,
		&apt, &npm, &pip, &sb.ImageID, &sb.Registry, &sb.SavedBytes, &sb.URLAccess, &sb.CheckpointInterval, &checkpoint, &ttlFrom)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if cause.Code != "" {
		sb.Cause = &cause
	}
	if sb.Env, err = s.unsealEnv(env, string(sb.ID)); err != nil {
		return sandbox.Sandbox{}, err
	}
	if sb.Labels, err = unmarshalMap(labels); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("labels of %s: %w", sb.ID, err)
	}
	if sb.Metadata, err = unmarshalMap(metadata); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("metadata of %s: %w", sb.ID, err)
	}
	if err := unmarshalPorts(ports, &sb); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("ports of %s: %w", sb.ID, err)
	}
	if sb.AptPackages, err = unmarshalStrings(apt); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("apt_packages of %s: %w", sb.ID, err)
	}
	if sb.NpmPackages, err = unmarshalStrings(npm); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("npm_packages of %s: %w", sb.ID, err)
	}
	if sb.PipPackages, err = unmarshalStrings(pip); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("pip_packages of %s: %w", sb.ID, err)
	}
	sb.PausedAt, sb.LastActivityAt, sb.LastCheckpointAt, sb.TTLFrom = database.FromNanos(paused), database.FromNanos(activity), database.FromNanos(checkpoint), database.FromNanos(ttlFrom)
	sb.CreatedAt, sb.UpdatedAt = database.FromNanos(created), database.FromNanos(updated)
	sb.StartedAt, sb.EndedAt = database.FromNanos(started), database.FromNanos(ended)
	return sb, nil
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
