package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/accounts"
	"github.com/modbox/modbox/internal/store/database"
)

// Queries of a workspace's use of its quota. The table quota_use has sums that triggers keep.
const (
	quotaSandboxes = "SELECT sandboxes, memory_bytes, cpu_milli, disk_bytes, paused_bytes, checkpoint_bytes FROM quota_use WHERE workspace_id = $1"
	quotaPromised  = "SELECT sandboxes, memory_bytes, disk_bytes FROM quota_use WHERE workspace_id = ''"
	// quotaArchives is the bytes in the object store, and of these the bytes of paused sandboxes, which quota_use has as well.
	quotaArchives = "SELECT coalesce(sum(size_bytes), 0), coalesce(sum(size_bytes) FILTER (WHERE released_at = 0), 0) FROM archives WHERE workspace_id = $1"
	quotaBuilds   = "SELECT coalesce(sum(memory_bytes), 0), coalesce(sum(cpu_milli), 0), coalesce(sum(disk_bytes), 0) FROM builds WHERE workspace_id = $1"
	// quotaSnapshots includes, once, what lies below snapshots.
	quotaSnapshots = `WITH ready (digest, size) AS (SELECT s.digest, s.size_bytes FROM snapshots s WHERE s.workspace_id = $1 AND ` + isReady + `)
		SELECT coalesce(sum(size), 0) FROM (SELECT size FROM ready UNION ALL SELECT max(b.size_bytes) FROM snapshots s
			JOIN snapshot_below b ON b.snapshot_id = s.id WHERE s.workspace_id = $1 AND ` + isReady + ` AND b.digest NOT IN (SELECT digest FROM ready)
			GROUP BY b.digest) AS kept`
	// quotaRecount replaces the sums in quota_use that differ from the rows.
	quotaRecount = `WITH live AS (SELECT workspace_id AS id, count(*) FILTER (WHERE ` + isRunning + `) AS sandboxes, coalesce(sum(memory_bytes) FILTER (WHERE ` + isRunning + `), 0) AS memory_bytes,
			coalesce(sum(cpu_milli) FILTER (WHERE ` + isRunning + `), 0) AS cpu_milli, coalesce(sum(disk_bytes) FILTER (WHERE ` + isRunning + `), 0) AS disk_bytes,
			coalesce(sum(CASE WHEN saved_bytes > 0 THEN saved_bytes ELSE disk_bytes END) FILTER (WHERE state = 'paused'), 0) AS paused_bytes
			FROM sandboxes WHERE ` + isLive + ` GROUP BY workspace_id),
		saved AS (SELECT s.workspace_id AS id, sum(c.size_bytes) AS checkpoint_bytes FROM sandboxes s JOIN checkpoints c ON c.sandbox_id = s.id
			WHERE ` + isLive + ` GROUP BY s.workspace_id),
		counted AS (SELECT w.id, coalesce(sandboxes, 0) AS sandboxes, coalesce(memory_bytes, 0) AS memory_bytes, coalesce(cpu_milli, 0) AS cpu_milli,
			coalesce(disk_bytes, 0) AS disk_bytes, coalesce(paused_bytes, 0) AS paused_bytes, coalesce(checkpoint_bytes, 0) AS checkpoint_bytes
			FROM workspaces w LEFT JOIN live ON live.id = w.id LEFT JOIN saved ON saved.id = w.id),
		wanted AS (SELECT * FROM counted UNION ALL SELECT '', coalesce(sum(sandboxes), 0), coalesce(sum(memory_bytes), 0), coalesce(sum(cpu_milli), 0),
			coalesce(sum(disk_bytes), 0), coalesce(sum(paused_bytes), 0), coalesce(sum(checkpoint_bytes), 0) FROM counted)
		INSERT INTO quota_use (workspace_id, sandboxes, memory_bytes, cpu_milli, disk_bytes, paused_bytes, checkpoint_bytes)
		SELECT * FROM wanted r WHERE NOT EXISTS (SELECT 1 FROM quota_use u WHERE u.workspace_id = r.id AND u.sandboxes = r.sandboxes AND u.memory_bytes = r.memory_bytes
			AND u.cpu_milli = r.cpu_milli AND u.disk_bytes = r.disk_bytes AND u.paused_bytes = r.paused_bytes AND u.checkpoint_bytes = r.checkpoint_bytes)
		ON CONFLICT (workspace_id) DO UPDATE SET sandboxes = excluded.sandboxes, memory_bytes = excluded.memory_bytes, cpu_milli = excluded.cpu_milli,
			disk_bytes = excluded.disk_bytes, paused_bytes = excluded.paused_bytes, checkpoint_bytes = excluded.checkpoint_bytes
		RETURNING workspace_id`
	// isRunning is the condition of sandboxes that start or run.
	isRunning = "state NOT IN ('paused', 'destroying', 'destroyed', 'failed')"
)

// Quotas are the quotas of workspaces, and their use.
type Quotas struct {
	db         *database.DB
	workspaces *accounts.Workspaces
}

// Quota returns the limits that were set for a workspace. Errors: NotFound if the workspace
// does not exist.
func (s *Quotas) Quota(ctx context.Context, ws sandbox.WorkspaceID) (quota.Limits, error) {
	if _, err := s.workspaces.Workspace(ctx, ws); err != nil {
		return nil, err
	}
	return limitsOf(ctx, s.db.Reader(), ws)
}

// SetQuota replaces the limits of a workspace. Errors: NotFound.
func (s *Quotas) SetQuota(ctx context.Context, ws sandbox.WorkspaceID, q quota.Limits) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		known, err := database.Exists(ctx, tx, "SELECT 1 FROM workspaces WHERE id = $1 AND deleting_at = 0", ws)
		if err == nil && !known {
			return accounts.NoWorkspace()
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM quotas WHERE workspace_id = $1", ws); err != nil {
			return err
		}
		for name, value := range q {
			if _, err := tx.ExecContext(ctx, "INSERT INTO quotas (workspace_id, name, value) VALUES ($1, $2, $3)", ws, name, value); err != nil {
				return err
			}
		}
		return s.db.TellReleased(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("set quota of workspace %s: %w", ws, err)
	}
	return nil
}

// QuotaUse returns the recorded use of a workspace's quota.
func (s *Quotas) QuotaUse(ctx context.Context, ws sandbox.WorkspaceID) (quota.Use, error) {
	use, err := quotaUse(ctx, s.db.Reader(), ws, true)
	if err != nil {
		return quota.Use{}, fmt.Errorf("use of workspace %s: %w", ws, err)
	}
	return use, nil
}

func limitsOf(ctx context.Context, q database.Querier, ws sandbox.WorkspaceID) (quota.Limits, error) {
	type limit struct {
		name  quota.Limit
		value int64
	}
	list, err := database.Collect(ctx, q, func(row database.Scanner) (v limit, err error) { return v, row.Scan(&v.name, &v.value) },
		"SELECT name, value FROM quotas WHERE workspace_id = $1", ws)
	if err != nil {
		return nil, fmt.Errorf("quota of workspace %s: %w", ws, err)
	}
	set := quota.Limits{}
	for _, v := range list {
		set[v.name] = v.value
	}
	return set, nil
}

// quotaUse reads the use of a workspace. Unless disk is true, its use of the disk has no snapshots.
func quotaUse(ctx context.Context, q database.Querier, ws sandbox.WorkspaceID, disk bool) (use quota.Use, err error) {
	err = q.QueryRowContext(ctx, quotaSandboxes, ws).Scan(&use.Sandboxes, &use.MemoryBytes, &use.CPUMilli, &use.Disk.Sandboxes, &use.Disk.Paused, &use.Disk.Checkpoints)
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // the workspace may be deleted meanwhile
		return use, err
	}
	var memory, cpu int64
	if err := q.QueryRowContext(ctx, quotaBuilds, ws).Scan(&memory, &cpu, &use.Disk.Builds); err != nil {
		return use, err
	}
	use.MemoryBytes, use.CPUMilli = use.MemoryBytes+memory, use.CPUMilli+cpu
	var archived int64
	if err := q.QueryRowContext(ctx, quotaArchives, ws).Scan(&use.ArchiveBytes, &archived); err != nil {
		return use, err
	}
	use.Disk.Paused -= archived
	if !disk {
		return use, nil
	}
	return use, q.QueryRowContext(ctx, quotaSnapshots, ws).Scan(&use.Disk.Snapshots)
}

// RecountUse corrects the sums that triggers keep where they differ from the rows, such as after changes by other programs, and
// returns the workspaces whose sums differed; "" stands for all together.
func (s *Quotas) RecountUse(ctx context.Context) (differed []sandbox.WorkspaceID, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		differed, err = database.Column[sandbox.WorkspaceID](ctx, tx, quotaRecount)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("recount the use of quotas: %w", err)
	}
	return differed, nil
}

// admit returns an error with code QuotaExceeded unless the quota allows n more sandboxes
// with these resources each. If gone is not nil, the resources of gone count as free.
func admit(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, r sandbox.Resources, n int, a quota.Admission, gone *sandbox.Sandbox) error {
	if gone == nil {
		gone = &sandbox.Sandbox{State: sandbox.Destroyed}
	}
	if a.Refuse != nil {
		return a.Refuse
	}
	if err := admitToWorkspace(ctx, tx, ws, r, n, a, gone); err != nil || a.MaxLive <= 0 && a.Most == (quota.Promise{}) {
		return err
	}
	live, promise, err := promised(ctx, tx)
	if err != nil {
		return err
	}
	var less quota.Use
	less.Without(gone)
	promise.MemoryBytes += less.MemoryBytes
	promise.DiskBytes += less.Disk.Sandboxes
	return cmp.Or(a.AdmitsLive(live+int(less.Sandboxes), n), a.Most.Admits(promise, r, n))
}

// Promised returns the sum of the limits of all sandboxes that start or run, and of all builds.
func (s *Quotas) Promised(ctx context.Context) (quota.Promise, error) {
	_, p, err := promised(ctx, s.db.Reader())
	if err != nil {
		return p, fmt.Errorf("sum up what is promised: %w", err)
	}
	return p, nil
}

// promised is Promised, and also returns the number of these sandboxes.
func promised(ctx context.Context, q database.Querier) (live int, p quota.Promise, err error) {
	err = q.QueryRowContext(ctx, quotaPromised).Scan(&live, &p.MemoryBytes, &p.DiskBytes)
	if err != nil {
		return 0, p, err
	}
	var builds quota.Promise
	err = q.QueryRowContext(ctx, "SELECT coalesce(sum(memory_bytes), 0), coalesce(sum(disk_bytes), 0) FROM builds").Scan(&builds.MemoryBytes, &builds.DiskBytes)
	p.MemoryBytes, p.DiskBytes = p.MemoryBytes+builds.MemoryBytes, p.DiskBytes+builds.DiskBytes
	return live, p, err
}

// admitToWorkspace is admit for the quota of the workspace alone.
func admitToWorkspace(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, r sandbox.Resources, n int, a quota.Admission, gone *sandbox.Sandbox) error {
	limits, err := effective(ctx, tx, ws, a.Limits)
	if err == nil && a.SharesRate {
		err = takeCreates(ctx, tx, ws, n, limits[quota.LimitCreates], time.Now())
	}
	if err != nil || !limits.Counts() {
		return err
	}
	use, err := quotaUse(ctx, tx, ws, limits[quota.LimitDisk] > 0)
	if err != nil {
		return err
	}
	use.Disk.AddUnrecorded(a.Unrecorded)
	use.Without(gone)
	return limits.Admits(use, r, int64(n))
}

// admitDisk is admit for an object of add bytes; 0 stands for a size that is not known yet.
func admitDisk(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, add int64, a quota.Admission) error {
	limits, err := effective(ctx, tx, ws, a.Limits)
	if err != nil || limits[quota.LimitDisk] <= 0 {
		return err
	}
	use, err := quotaUse(ctx, tx, ws, true)
	if err != nil {
		return err
	}
	use.Disk.AddUnrecorded(a.Unrecorded)
	return limits.AdmitsDisk(use.Disk, add)
}

// effective returns the quota that applies to a workspace.
func effective(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, base quota.Limits) (quota.Limits, error) {
	set, err := limitsOf(ctx, tx, ws)
	return set.Over(base), err
}
