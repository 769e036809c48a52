package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const registryColumns = `id, workspace_id, name, server, host, username, email, key_id, password, enabled,
	created_by, created_at, updated_at`

// Registries are the credentials of registries.
type Registries struct{ db *database.DB }

// CreateRegistry records a registry credential. Errors: Exists if the workspace has a
// credential of the same name; QuotaExceeded if it has limit credentials.
func (s *Registries) CreateRegistry(ctx context.Context, r registry.Credential, limit int) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var count int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM registries WHERE workspace_id = $1", r.Workspace).Scan(&count); err != nil {
			return err
		}
		if count >= limit {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has %d registries, which is the limit; delete some", count)
		}
		if err := registryNameFree(ctx, tx, &r); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO registries ("+registryColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
			r.ID, r.Workspace, r.Name, r.Server, r.Host, r.Username, r.Email, r.Password.KeyID, r.Password.Data, r.Enabled,
			r.CreatedBy, database.Nanos(r.CreatedAt), database.Nanos(r.UpdatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("record registry %s: %w", r.ID, err)
	}
	return nil
}

// registryNameFree returns code Exists if another credential of the workspace has the name.
func registryNameFree(ctx context.Context, tx *sql.Tx, r *registry.Credential) error {
	var one int
	err := tx.QueryRowContext(ctx, "SELECT 1 FROM registries WHERE workspace_id = $1 AND name = $2 AND id <> $3", r.Workspace, r.Name, r.ID).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &sandbox.Error{Code: sandbox.Exists, Field: "name", Message: fmt.Sprintf("the workspace has a registry %q already", r.Name)}
}

// Registry returns a workspace's registry credential. Errors: NotFound.
func (s *Registries) Registry(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) (registry.Credential, error) {
	return registryByID(ctx, s.db.Reader(), ws, id)
}

func registryByID(ctx context.Context, q database.Querier, ws sandbox.WorkspaceID, id sandbox.RegistryID) (registry.Credential, error) {
	return scanRegistry(q.QueryRowContext(ctx, "SELECT "+registryColumns+" FROM registries WHERE workspace_id = $1 AND id = $2", ws, id))
}

// Registries returns the registry credentials of a workspace, the oldest first.
func (s *Registries) Registries(ctx context.Context, ws sandbox.WorkspaceID) ([]registry.Credential, error) {
	list, err := queryRegistries(ctx, s.db.Reader(), "SELECT "+registryColumns+" FROM registries WHERE workspace_id = $1 ORDER BY created_at, id", ws)
	if err != nil {
		return nil, fmt.Errorf("list registries: %w", err)
	}
	return list, nil
}

func queryRegistries(ctx context.Context, q database.Querier, query string, args ...any) ([]registry.Credential, error) {
	list, err := database.Collect(ctx, q, scanRegistry, query, args...)
	return append([]registry.Credential{}, list...), err
}

// UpdateRegistry replaces prev, a credential as a read returned it, by next. Errors: NotFound; Conflict, with
// nothing written, if the credential is not prev any more; Exists if another credential has the new name.
func (s *Registries) UpdateRegistry(ctx context.Context, prev, next registry.Credential) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := registryByID(ctx, tx, prev.Workspace, prev.ID)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(now, prev) {
			return sandbox.Errorf(sandbox.Conflict, "another request changes the registry at this moment; try again")
		}
		if err := registryNameFree(ctx, tx, &next); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE registries SET name = $2, server = $3, host = $4, username = $5, email = $6,
			key_id = $7, password = $8, enabled = $9, updated_at = $10 WHERE id = $1`,
			prev.ID, next.Name, next.Server, next.Host, next.Username, next.Email, next.Password.KeyID, next.Password.Data, next.Enabled, database.Nanos(next.UpdatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("change registry %s: %w", prev.ID, err)
	}
	return nil
}

// DeleteRegistry deletes a credential. Errors: NotFound.
func (s *Registries) DeleteRegistry(ctx context.Context, ws sandbox.WorkspaceID, id sandbox.RegistryID) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM registries WHERE workspace_id = $1 AND id = $2", ws, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return noRegistry()
	})
	if err != nil {
		return fmt.Errorf("delete registry %s: %w", id, err)
	}
	return nil
}

func noRegistry() error { return sandbox.Errorf(sandbox.NotFound, "there is no such registry") }

func scanRegistry(row database.Scanner) (registry.Credential, error) {
	var r registry.Credential
	var created, updated int64
	err := row.Scan(&r.ID, &r.Workspace, &r.Name, &r.Server, &r.Host, &r.Username, &r.Email, &r.Password.KeyID, &r.Password.Data, &r.Enabled,
		&r.CreatedBy, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return registry.Credential{}, noRegistry()
	}
	if err != nil {
		return registry.Credential{}, fmt.Errorf("read registry: %w", err)
	}
	r.CreatedAt, r.UpdatedAt = database.FromNanos(created), database.FromNanos(updated)
	return r, nil
}
