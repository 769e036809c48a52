package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// BeginBuild records a running build of a workspace and returns the resources that each of
// its boxes may use: at most most, less if the quota has less left. Errors: QuotaExceeded
// if the quota has less left than least; a.Refuse.
func (s *Quotas) BeginBuild(ctx context.Context, id sandbox.ID, ws sandbox.WorkspaceID, least, most sandbox.Resources, a quota.Admission) (r sandbox.Resources, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if a.Refuse != nil {
			return a.Refuse
		}
		limits, err := effective(ctx, tx, ws, a.Limits)
		if err != nil {
			return err
		}
		use, err := quotaUse(ctx, tx, ws, limits[quota.LimitDisk] > 0)
		if err != nil {
			return err
		}
		use.Disk.AddUnrecorded(a.Unrecorded)
		if err := limits.AdmitsBuild(use, least); err != nil {
			return err
		}
		_, promise, err := promised(ctx, tx)
		if err != nil {
			return err
		}
		if err := a.Most.Admits(promise, least, 1); err != nil {
			return err
		}
		r = a.Most.Leaves(promise, limits.Leaves(use, most))
		_, err = tx.ExecContext(ctx, "INSERT INTO builds (id, workspace_id, memory_bytes, cpu_milli, disk_bytes) VALUES ($1, $2, $3, $4, $5)",
			id, ws, r.MemoryBytes, r.CPUMilli, r.DiskBytes)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("record build of workspace %s: %w", ws, err)
	}
	return r, nil
}

// EndBuild deletes the record of a build. Idempotent.
func (s *Quotas) EndBuild(ctx context.Context, id sandbox.ID) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM builds WHERE id = $1", id)
		if err == nil {
			err = s.db.TellReleased(ctx, tx)
		}
		return err
	})
}

// Builds returns the ids of all recorded builds.
func (s *Quotas) Builds(ctx context.Context) ([]sandbox.ID, error) {
	list, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (id sandbox.ID, err error) { return id, row.Scan(&id) }, "SELECT id FROM builds")
	if err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	return list, nil
}
