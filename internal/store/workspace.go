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

// named is the workspace $1: the one with that id, or else that slug. What looks
// like an id is none of the slugs, $2: somebody could have taken another's id for one,
// and wait until those who name it by that are in it no more.
const named = "(w.id = $1 OR w.slug = $1 AND $2)"

func isSlug(ref sandbox.WorkspaceID) bool {
	_, id := sandbox.ParseID(string(ref))
	return !id
}

// WorkspaceNamed returns the id of the workspace with that id, or else that slug.
// Errors: NotFound, also while it is being deleted.
func (s *Store) WorkspaceNamed(ctx context.Context, ref sandbox.WorkspaceID) (id sandbox.WorkspaceID, err error) {
	err = s.reader.QueryRowContext(ctx, "SELECT w.id FROM workspaces w WHERE "+named+" AND w.deleting_at = 0 ORDER BY w.id = $1 DESC LIMIT 1",
		ref, isSlug(ref)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noWorkspace()
	}
	return id, err
}

// Membership returns the user's place in the workspace with that id, or else that
// slug. Errors: NotFound when it has none there, when it is disabled, and when the workspace does not exist or is
// being deleted.
func (s *Store) Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error) {
	m := sandbox.Membership{User: user}
	err := s.reader.QueryRowContext(ctx, `SELECT w.id, m.role, u.administrator FROM members m
		JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace_id
		WHERE `+named+` AND m.user_id = $3 AND u.disabled_at = 0 AND w.deleting_at = 0
		ORDER BY w.id = $1 DESC LIMIT 1`, ws, isSlug(ws), user).
		Scan(&m.Workspace, &m.Role, &m.Administrator)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Membership{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return sandbox.Membership{}, fmt.Errorf("look up membership of %s: %w", user, err)
	}
	return m, nil
}
