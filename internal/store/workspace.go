package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// What a new installation starts with.
const (
	defaultWorkspace = "default"
	ownerUser        = "owner"
	ownerRole        = "owner"
)

// EnsureDefaults returns the default workspace and its owner, making them when
// they do not exist. Idempotent, also when called concurrently.
func (s *Store) EnsureDefaults(ctx context.Context) (ws sandbox.WorkspaceID, user sandbox.UserID, err error) {
	user = ownerUser
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := nanos(time.Now())
		if _, err := tx.ExecContext(ctx, "INSERT INTO users (id, name, created_at) VALUES ($1, $1, $2) ON CONFLICT DO NOTHING",
			user, now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO workspaces (id, name, is_default, created_by, created_at)
			VALUES ($1, $2, 1, $3, $4) ON CONFLICT DO NOTHING`, sandbox.NewWorkspaceID(), defaultWorkspace, user, now); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT id FROM workspaces WHERE is_default = 1").Scan(&ws); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO members (workspace_id, user_id, role, created_at)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, ws, user, ownerRole, now)
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("make default workspace: %w", err)
	}
	return ws, user, nil
}

// IsMember reports whether the user may act in the workspace; false for a
// workspace that does not exist.
func (s *Store) IsMember(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (bool, error) {
	var one int
	err := s.reader.QueryRowContext(ctx, "SELECT 1 FROM members WHERE workspace_id = $1 AND user_id = $2", ws, user).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up membership of %s: %w", user, err)
	}
	return true, nil
}
