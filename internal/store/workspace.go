package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

// The workspace and the user of a new installation.
const (
	defaultWorkspace = "default"
	ownerUser        = "owner"
)

// EnsureDefaults returns the default workspace and its owner; it creates them if they do not
// exist. Idempotent, also for concurrent calls.
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
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, ws, user, account.RoleOwner, now)
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("make default workspace: %w", err)
	}
	return ws, user, nil
}

// named selects the workspace with the id $1, or else with the slug $2. A text with the form
// of an id is never a slug: else a user could choose the id of another workspace as a slug,
// and get the requests that name that workspace by its id after it was deleted.
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

// Membership returns the user's membership in the workspace with that id, or else with that
// slug. Errors: NotFound if the user is no member or is disabled, and if the workspace does
// not exist or is being deleted.
func (s *Store) Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error) {
	m := account.Membership{User: user}
	err := s.reader.QueryRowContext(ctx, `SELECT w.id, m.role, u.administrator FROM members m
		JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace_id
		WHERE `+named+` AND m.user_id = $3 AND u.disabled_at = 0 AND w.deleting_at = 0
		ORDER BY w.id = $1 DESC LIMIT 1`, ws, isSlug(ws), user).
		Scan(&m.Workspace, &m.Role, &m.Administrator)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Membership{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return account.Membership{}, fmt.Errorf("look up membership of %s: %w", user, err)
	}
	return m, nil
}
