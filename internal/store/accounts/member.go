package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Members are the members of workspaces.
type Members struct{ db *database.DB }

// NewMembers returns the rows in a database.
func NewMembers(db *database.DB) *Members { return &Members{db} }

func addMember(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role, at time.Time) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)", ws, user, role, database.Nanos(at))
	return err
}

// Members returns the members of a workspace in the order in which they joined.
func (s *Members) Members(ctx context.Context, ws sandbox.WorkspaceID) ([]account.Member, error) {
	return database.Collect(ctx, s.db.Reader(), scanMember, `SELECT u.id, u.name, u.email, m.role, m.created_at FROM members m JOIN users u ON u.id = m.user_id
		WHERE m.workspace_id = $1 ORDER BY m.created_at, u.id`, ws)
}

// Member returns a member of a workspace. Errors: NotFound.
func (s *Members) Member(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) (account.Member, error) {
	return scanMember(s.db.Reader().QueryRowContext(ctx, `SELECT u.id, u.name, u.email, m.role, m.created_at FROM members m
		JOIN users u ON u.id = m.user_id WHERE m.workspace_id = $1 AND m.user_id = $2`, ws, user))
}

// AddMember makes a user a member. Errors: Exists if it is a member already.
func (s *Members) AddMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		is, err := database.Exists(ctx, tx, "SELECT 1 FROM members WHERE workspace_id = $1 AND user_id = $2", ws, user)
		if err == nil && is {
			return sandbox.Errorf(sandbox.Exists, "the user is a member of this workspace already")
		}
		return errors.Join(err, addMember(ctx, tx, ws, user, role, at))
	})
}

// SetRole changes the role of a member and deletes the invitations that the member made.
// Errors: NotFound; Conflict if the workspace would have no owner.
func (s *Members) SetRole(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2", ws, user, role))
		if err == nil && n == 0 {
			return noMember()
		}
		return errors.Join(err, withdrawInvitations(ctx, tx, ws, user), owned(ctx, tx, ws))
	})
}

// RemoveMember deletes a membership and the invitations that the user made, and revokes its
// tokens for that workspace. Errors: NotFound; Conflict if the workspace would have no owner.
func (s *Members) RemoveMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2", ws, user))
		if err == nil && n == 0 {
			return noMember()
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE tokens SET revoked_at = $3 WHERE workspace_id = $1 AND user_id = $2 AND revoked_at = 0", ws, user, database.Nanos(at)); err != nil {
			return err
		}
		return errors.Join(withdrawInvitations(ctx, tx, ws, user), owned(ctx, tx, ws))
	})
}

// withdrawInvitations deletes the invitations to a workspace that a user made: the user
// knows their codes and could rejoin with one of them.
func withdrawInvitations(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, user sandbox.UserID) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM invitations WHERE workspace_id = $1 AND created_by = $2", ws, user)
	return err
}

// owned returns code Conflict if a workspace has no owner.
func owned(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID) error {
	ok, err := database.Exists(ctx, tx, "SELECT 1 FROM members WHERE workspace_id = $1 AND role = 'owner' LIMIT 1", ws)
	if err == nil && !ok {
		return sandbox.Errorf(sandbox.Conflict, "a workspace needs an owner; make another member one first")
	}
	return err
}

func noMember() error { return sandbox.Errorf(sandbox.NotFound, "there is no such member") }

func scanMember(row database.Scanner) (account.Member, error) {
	var m account.Member
	var created int64
	err := row.Scan(&m.User, &m.Name, &m.Email, &m.Role, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Member{}, noMember()
	}
	if err != nil {
		return account.Member{}, fmt.Errorf("read member: %w", err)
	}
	m.CreatedAt = database.FromNanos(created)
	return m, nil
}
