package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// CreateSandbox records a new sandbox with its event and idempotency key in one transaction.
// If an unexpired use of the same idempotency key has a sandbox, or else if a live sandbox
// of the workspace has the same name, CreateSandbox returns that sandbox instead. If c
// replaces the sandbox of the same name, CreateSandbox also records the end of the old
// sandbox, whose resources count as free for the new one.
//
// Errors: QuotaExceeded, with nothing recorded, if the quota of the workspace or the
// capacity of the installation is too small; Unavailable if it, or the sandbox that it replaces, is of another owner.
func (s *Sandboxes) CreateSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (sandbox.Recorded, error) {
	rec, err := s.createSandbox(ctx, c, a)
	if err != nil {
		return sandbox.Recorded{}, fmt.Errorf("record sandbox %s: %w", c.Sandbox.ID, err)
	}
	return rec, nil
}

func (s *Sandboxes) createSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (sandbox.Recorded, error) {
	insert, err := s.insertion(c)
	if err != nil {
		return sandbox.Recorded{}, err
	}
	var found recordedRow
	err = s.write(ctx, c.Sandbox.ID, func(ctx context.Context, tx *sql.Tx) (err error) {
		if found, err = findExisting(ctx, tx, c); err != nil {
			return err
		}
		var gone *sandbox.Sandbox
		if c.Replaces != nil && found.by == sandbox.MatchName {
			gone = &found.row.Sandbox
			if err := s.owner.Check(gone.ID); err != nil {
				return err
			}
		}
		if found.by != sandbox.MatchNone && gone == nil {
			return nil
		}
		if err := admit(ctx, tx, c.Sandbox.Workspace, c.Sandbox.Resources, 1, a, gone); err != nil {
			return err
		}
		if gone != nil {
			ended, err := transition(ctx, tx, gone.ID, gone.State, sandbox.Destroying, sandbox.Change{Cause: &c.Replaces.Cause}, c.Replaces.Event)
			if err != nil {
				return err
			}
			found.by, found.dying = sandbox.MatchNone, &ended
		}
		return insert.run(ctx, tx)
	})
	if err != nil {
		return sandbox.Recorded{}, err
	}
	return s.recorded(found, c)
}

// CreateForks records the children of a fork and their events in one transaction. The
// children have the same workspace and the same resources. For a child whose name a live
// sandbox has, CreateForks returns that sandbox instead.
//
// Errors: QuotaExceeded, with nothing recorded, unless the quota allows all new children.
func (s *Sandboxes) CreateForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]sandbox.Recorded, error) {
	recs, err := s.createForks(ctx, children, a)
	if err != nil {
		return nil, fmt.Errorf("record %d forks: %w", len(children), err)
	}
	return recs, nil
}

func (s *Sandboxes) createForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]sandbox.Recorded, error) {
	inserts := make([]*insertion, len(children))
	for i, c := range children {
		var err error
		if inserts[i], err = s.insertion(c); err != nil {
			return nil, err
		}
	}
	found := make([]recordedRow, len(children))
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		n := 0
		for i, c := range children {
			if found[i], err = findExisting(ctx, tx, c); err != nil {
				return err
			}
			if found[i].by == sandbox.MatchNone {
				n++
			}
		}
		if n == 0 {
			return nil
		}
		if err := admit(ctx, tx, children[0].Sandbox.Workspace, children[0].Sandbox.Resources, n, a, nil); err != nil {
			return err
		}
		for i := range children {
			if found[i].by != sandbox.MatchNone {
				continue
			}
			found[i].dying = nil
			if err := s.owner.Check(children[i].Sandbox.ID); err != nil {
				return err
			}
			if err := inserts[i].run(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	recs := make([]sandbox.Recorded, len(children))
	for i, c := range children {
		if recs[i], err = s.recorded(found[i], c); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

// recordedRow is a [sandbox.Recorded] whose secrets are still encrypted.
type recordedRow struct {
	row   sandboxRow // of the sandbox that exists
	hash  string     // of its request
	by    sandbox.Match
	dying *sandboxRow
}

// recorded returns the answer to a creation for which there was found, decrypted.
func (s *Sandboxes) recorded(found recordedRow, c sandbox.Creation) (sandbox.Recorded, error) {
	rec := sandbox.Recorded{Sandbox: c.Sandbox, RequestHash: c.RequestHash, By: found.by}
	var err error
	if found.by != sandbox.MatchNone {
		if rec.Sandbox, err = s.open(found.row); err != nil {
			return rec, err
		}
		if rec.RequestHash, err = s.unsealText(found.hash, "request_hash", string(rec.Sandbox.ID)); err != nil {
			return rec, err
		}
	}
	if found.dying != nil {
		dying, err := s.open(*found.dying)
		if err != nil {
			return rec, err
		}
		rec.Dying = &dying
	}
	return rec, nil
}

// findExisting returns the sandbox that an earlier equal request created, or else a sandbox
// of the same name that is being destroyed.
func findExisting(ctx context.Context, tx *sql.Tx, c sandbox.Creation) (recordedRow, error) {
	ws := c.Sandbox.Workspace
	if c.IdempotencyKey != "" {
		found, err := scanRecorded(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+`, request_hash FROM sandboxes WHERE id =
			(SELECT sandbox_id FROM idempotency_keys WHERE workspace_id = $1 AND idempotency_key = $2 AND expires_at > $3)`,
			ws, c.IdempotencyKey, database.Nanos(c.Sandbox.CreatedAt)), sandbox.MatchKey)
		if !errors.Is(err, sql.ErrNoRows) {
			return found, err
		}
	}
	found, err := scanRecorded(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+", request_hash FROM sandboxes WHERE workspace_id = $1 AND name = $2 AND "+isNamed,
		ws, c.Sandbox.Name), sandbox.MatchName)
	if !errors.Is(err, sql.ErrNoRows) {
		return found, err
	}
	dying, err := scanSandboxRow(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE workspace_id = $1 AND state = 'destroying' AND name = $2 AND "+isLive+
		" ORDER BY created_at DESC, id DESC LIMIT 1", ws, c.Sandbox.Name)) // in the order of the index, so that SQLite uses it
	if errors.Is(err, sql.ErrNoRows) {
		return recordedRow{}, nil
	}
	return recordedRow{dying: &dying}, err
}

// scanRecorded reads sandboxColumns and request_hash of a sandbox that was found by a match.
func scanRecorded(row database.Scanner, by sandbox.Match) (found recordedRow, err error) {
	found.by = by
	found.row, err = scanSandboxRow(scannerFunc(func(dest ...any) error { return row.Scan(append(dest, &found.hash)...) }))
	return found, err
}

type scannerFunc func(dest ...any) error

func (f scannerFunc) Scan(dest ...any) error { return f(dest...) }

// insertion is a creation with the stored form of what the columns do not take as it is.
type insertion struct {
	sandbox.Creation
	env, hash, labels, metadata, ports string
}

// insertion prepares the insertion of a sandbox. Secrets are encrypted here, because a transaction must wait
// for nothing but the database.
func (s *Sandboxes) insertion(c sandbox.Creation) (*insertion, error) {
	sb := &c.Sandbox
	i := &insertion{Creation: c, hash: c.RequestHash}
	var err error
	if i.env, err = s.sealEnv(sb.Env, string(sb.ID)); err != nil {
		return nil, err
	}
	if len(sb.Env) > 0 { // a hash of the request would allow guesses at the variables
		if i.hash, err = s.sealText(i.hash, "request_hash", string(sb.ID)); err != nil {
			return nil, err
		}
	}
	if i.labels, err = marshalMap(sb.Labels); err != nil {
		return nil, err
	}
	if i.metadata, err = marshalMap(sb.Metadata); err != nil {
		return nil, err
	}
	i.ports, err = marshalPorts(sb.Published)
	return i, err
}

// run inserts the sandbox with its labels, its event and its use of an idempotency key.
func (i *insertion) run(ctx context.Context, tx *sql.Tx) error {
	sb := &i.Sandbox
	apt, npm, pip := marshalStrings(sb.AptPackages), marshalStrings(sb.NpmPackages), marshalStrings(sb.PipPackages)
	if _, err := tx.ExecContext(ctx, `INSERT INTO sandboxes (id, workspace_id, name, host_label, state, image, image_digest,
			env, labels, memory_bytes, cpu_milli, disk_bytes, readiness_port, ttl, created_by, created_at, updated_at, request_hash,
			idle_timeout, paused_timeout, execution_timeout, on_idle, description, metadata, parent_id, last_activity_at,
			network_enabled, ports, snapshot_id, handle, apt_packages, npm_packages, pip_packages, image_id, registry_id, url_access, checkpoint_interval,
			network_rules, starts_left)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39)`,
		sb.ID, sb.Workspace, sb.Name, sb.HostLabel, sb.State, sb.Image, sb.ImageDigest,
		i.env, i.labels, sb.Resources.MemoryBytes, sb.Resources.CPUMilli, sb.Resources.DiskBytes, int64(sb.ReadinessPort),
		int64(sb.TTL), sb.CreatedBy, database.Nanos(sb.CreatedAt), database.Nanos(sb.UpdatedAt), i.hash,
		int64(sb.Timeouts.Idle), int64(sb.Timeouts.Paused), int64(sb.Timeouts.Execution), sb.Timeouts.OnIdle,
		sb.Description, i.metadata, sb.Parent, database.Nanos(sb.LastActivityAt), database.Number(sb.Network.Enabled), i.ports, sb.Snapshot, sb.Handle, apt, npm, pip, sb.ImageID, sb.Registry, sb.URLAccess, int64(sb.CheckpointInterval),
		marshalRules(sb.Network.Rules()), i.StartsLeft); err != nil {
		return err
	}
	for label, value := range sb.Labels {
		if _, err := tx.ExecContext(ctx, "INSERT INTO sandbox_labels (sandbox_id, label, value) VALUES ($1, $2, $3)",
			sb.ID, label, value); err != nil {
			return err
		}
	}
	if i.IdempotencyKey != "" {
		// An expired use of the key is replaced; an unexpired one was found before.
		if _, err := tx.ExecContext(ctx, `INSERT INTO idempotency_keys (workspace_id, idempotency_key, sandbox_id, expires_at)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (workspace_id, idempotency_key) DO UPDATE SET sandbox_id = excluded.sandbox_id, expires_at = excluded.expires_at`,
			sb.Workspace, i.IdempotencyKey, sb.ID, database.Nanos(sb.CreatedAt.Add(i.KeyLifetime))); err != nil {
			return err
		}
	}
	return insertEvent(ctx, tx, sb.ID, i.Event)
}
