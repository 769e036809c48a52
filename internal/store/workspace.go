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
)

// EnsureDefaults returns the default workspace and its owner, making them when
// they do not exist. Idempotent, also when called concurrently.
func (s *Store) EnsureDefaults(ctx context.Context) (ws sandbox.WorkspaceID, user sandbox.UserID, err error) {
	user = ownerUser
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := nanos(time.Now())
		if _, err := tx.ExecContext(ctx, `INSERT INTO users (id, name, administrator, created_at, updated_at)
			VALUES ($1, $1, 1, $2, $2) ON CONFLICT DO NOTHING`, user, now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO workspaces (id, name, slug, is_default, created_by, created_at, updated_at)
			VALUES ($1, $2, $2, 1, $3, $4, $4) ON CONFLICT DO NOTHING`, sandbox.NewWorkspaceID(), defaultWorkspace, user, now); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT id FROM workspaces WHERE is_default = 1").Scan(&ws); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE users SET home = $1 WHERE id = $2 AND home = ''", ws, user); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO members (workspace_id, user_id, role, created_at)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, ws, user, sandbox.RoleOwner, now)
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("make default workspace: %w", err)
	}
	return ws, user, nil
}

// Membership returns the user's place in the workspace. Errors: NotFound when it
// has none there, when it is disabled, and when the workspace does not exist or is
// being deleted.
func (s *Store) Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error) {
	m := sandbox.Membership{User: user, Workspace: ws}
	err := s.reader.QueryRowContext(ctx, `SELECT m.role, u.administrator FROM members m
		JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace_id
		WHERE m.workspace_id = $1 AND m.user_id = $2 AND u.disabled_at = 0 AND w.deleting_at = 0`, ws, user).
		Scan(&m.Role, &m.Administrator)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Membership{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return sandbox.Membership{}, fmt.Errorf("look up membership of %s: %w", user, err)
	}
	return m, nil
}
