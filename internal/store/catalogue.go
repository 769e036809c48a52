package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const catalogueColumns = `id, workspace_id, name, image, tag, description, enabled, is_default, memory_bytes,
	readiness_port, ttl, registry_id, created_by, created_at, updated_at`

// Catalogue is the image catalogues of workspaces.
type Catalogue struct{ db *database.DB }

// CreateCatalogueImage records an entry of a workspace's image catalogue. If the entry is
// the default, the previous default loses that mark. Errors: Exists if the workspace has
// an entry of the same name; QuotaExceeded if it has limit entries.
func (s *Catalogue) CreateCatalogueImage(ctx context.Context, c catalogue.Entry, limit int) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var count int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM catalogue_images WHERE workspace_id = $1", c.Workspace).Scan(&count); err != nil {
			return err
		}
		if count >= limit {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has %d images in its catalogue, which is the limit; delete some", count)
		}
		if err := resolveConflicts(ctx, tx, &c); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO catalogue_images ("+catalogueColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
			c.ID, c.Workspace, c.Name, c.Image, c.Tag, c.Description, database.Number(c.Enabled), database.Number(c.IsDefault), c.MemoryBytes,
			int64(c.ReadinessPort), int64(c.TTL), c.Registry, c.CreatedBy, database.Nanos(c.CreatedAt), database.Nanos(c.UpdatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("record catalogue image %s: %w", c.ID, err)
	}
	return nil
}

// resolveConflicts returns code Exists if another entry has the name of c. If c is the default, it
// removes that mark from the other entries.
func resolveConflicts(ctx context.Context, tx *sql.Tx, c *catalogue.Entry) error {
	var one int
	err := tx.QueryRowContext(ctx, "SELECT 1 FROM catalogue_images WHERE workspace_id = $1 AND name = $2 AND id <> $3", c.Workspace, c.Name, c.ID).Scan(&one)
	if err == nil {
		return &sandbox.Error{Code: sandbox.Exists, Field: "name", Message: fmt.Sprintf("the workspace has an image %q in its catalogue already", c.Name)}
	}
	if !errors.Is(err, sql.ErrNoRows) || !c.IsDefault {
		return noneIsFine(err)
	}
	_, err = tx.ExecContext(ctx, "UPDATE catalogue_images SET is_default = 0 WHERE workspace_id = $1 AND is_default = 1 AND id <> $2", c.Workspace, c.ID)
	return err
}

// noneIsFine returns err, or nil if err reports a missing row.
func noneIsFine(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// CatalogueImage returns an entry of a workspace's catalogue. Errors: NotFound.
func (s *Catalogue) CatalogueImage(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) (catalogue.Entry, error) {
	return catalogueImage(ctx, s.db.Reader(), ws, id)
}

func catalogueImage(ctx context.Context, q database.Querier, ws sandbox.WorkspaceID, id sandbox.ImageID) (catalogue.Entry, error) {
	return scanCatalogueImage(q.QueryRowContext(ctx, "SELECT "+catalogueColumns+" FROM catalogue_images WHERE id = $1 AND workspace_id = $2", id, ws))
}

// DefaultCatalogueImage returns a workspace's default entry. Errors: NotFound.
func (s *Catalogue) DefaultCatalogueImage(ctx context.Context, ws sandbox.WorkspaceID) (catalogue.Entry, error) {
	return scanCatalogueImage(s.db.Reader().QueryRowContext(ctx, "SELECT "+catalogueColumns+" FROM catalogue_images WHERE workspace_id = $1 AND is_default = 1", ws))
}

// CatalogueImages returns the entries of a workspace's catalogue, the oldest first.
func (s *Catalogue) CatalogueImages(ctx context.Context, ws sandbox.WorkspaceID) ([]catalogue.Entry, error) {
	list, err := database.Collect(ctx, s.db.Reader(), scanCatalogueImage, "SELECT "+catalogueColumns+" FROM catalogue_images WHERE workspace_id = $1 ORDER BY created_at, id", ws)
	if err != nil {
		return nil, fmt.Errorf("list catalogue images: %w", err)
	}
	return list, nil
}

// CatalogueReferences returns the references of the images in all workspaces' catalogues.
func (s *Catalogue) CatalogueReferences(ctx context.Context) ([]string, error) {
	return database.Column[string](ctx, s.db.Reader(), "SELECT DISTINCT CASE WHEN tag = '' THEN image ELSE image || ':' || tag END FROM catalogue_images")
}

// UpdateCatalogueImage replaces prev, an entry as a read returned it, by next. If next is the default, the
// previous default loses that mark. Errors: NotFound; Conflict, with nothing written, if the entry is not prev any
// more; Exists if another entry has the new name.
func (s *Catalogue) UpdateCatalogueImage(ctx context.Context, prev, next catalogue.Entry) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := catalogueImage(ctx, tx, prev.Workspace, prev.ID)
		if err != nil {
			return err
		}
		if now != prev {
			return sandbox.Errorf(sandbox.Conflict, "another request changes the image at this moment; try again")
		}
		if err := resolveConflicts(ctx, tx, &next); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE catalogue_images SET name = $2, image = $3, tag = $4, description = $5, enabled = $6, is_default = $7,
			memory_bytes = $8, readiness_port = $9, ttl = $10, registry_id = $11, updated_at = $12 WHERE id = $1`,
			prev.ID, next.Name, next.Image, next.Tag, next.Description, database.Number(next.Enabled), database.Number(next.IsDefault),
			next.MemoryBytes, int64(next.ReadinessPort), int64(next.TTL), next.Registry, database.Nanos(next.UpdatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("change catalogue image %s: %w", prev.ID, err)
	}
	return nil
}

// DeleteCatalogueImage deletes an entry. Errors: NotFound.
func (s *Catalogue) DeleteCatalogueImage(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.ImageID) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM catalogue_images WHERE id = $1 AND workspace_id = $2", id, ws)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return noCatalogueImage()
	})
	if err != nil {
		return fmt.Errorf("delete catalogue image %s: %w", id, err)
	}
	return nil
}

// DisabledImages returns the disabled built-in images, with the time when each was disabled.
func (s *Catalogue) DisabledImages(ctx context.Context) (map[sandbox.ImageID]time.Time, error) {
	rows, err := s.db.Reader().QueryContext(ctx, "SELECT image_id, disabled_at FROM disabled_images")
	if err != nil {
		return nil, fmt.Errorf("list disabled images: %w", err)
	}
	defer rows.Close()
	disabled := map[sandbox.ImageID]time.Time{}
	for rows.Next() {
		var id sandbox.ImageID
		var at int64
		if err := rows.Scan(&id, &at); err != nil {
			return nil, fmt.Errorf("list disabled images: %w", err)
		}
		disabled[id] = database.FromNanos(at)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list disabled images: %w", err)
	}
	return disabled, nil
}

// ImageDisabled reports whether a built-in image is disabled.
func (s *Catalogue) ImageDisabled(ctx context.Context, id sandbox.ImageID) (bool, error) {
	var one int
	err := s.db.Reader().QueryRowContext(ctx, "SELECT 1 FROM disabled_images WHERE image_id = $1", id).Scan(&one)
	if noneIsFine(err) != nil {
		return false, fmt.Errorf("read disabled image %s: %w", id, err)
	}
	return err == nil, nil
}

// SetImageEnabled enables or disables a built-in image. Idempotent.
func (s *Catalogue) SetImageEnabled(ctx context.Context, id sandbox.ImageID, enabled bool, by sandbox.UserID, at time.Time) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if enabled {
			_, err = tx.ExecContext(ctx, "DELETE FROM disabled_images WHERE image_id = $1", id)
		} else {
			_, err = tx.ExecContext(ctx, "INSERT INTO disabled_images (image_id, disabled_by, disabled_at) VALUES ($1, $2, $3) ON CONFLICT (image_id) DO NOTHING",
				id, by, database.Nanos(at))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("switch image %s: %w", id, err)
	}
	return nil
}

func noCatalogueImage() error {
	return sandbox.Errorf(sandbox.NotFound, "there is no such image in the catalogue")
}

func scanCatalogueImage(row database.Scanner) (catalogue.Entry, error) {
	var c catalogue.Entry
	var created, updated int64
	err := row.Scan(&c.ID, &c.Workspace, &c.Name, &c.Image, &c.Tag, &c.Description, &c.Enabled, &c.IsDefault, &c.MemoryBytes,
		&c.ReadinessPort, &c.TTL, &c.Registry, &c.CreatedBy, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return catalogue.Entry{}, noCatalogueImage()
	}
	if err != nil {
		return catalogue.Entry{}, fmt.Errorf("read catalogue image: %w", err)
	}
	c.CreatedAt, c.UpdatedAt = database.FromNanos(created), database.FromNanos(updated)
	return c, nil
}
