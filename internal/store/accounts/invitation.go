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

const invitationColumns = "id, hash, coalesce(workspace_id, ''), role, email, coalesce(user_id, ''), created_by, created_at, expires_at"

// Invitations are the invitations to workspaces.
type Invitations struct{ db *database.DB }

// NewInvitations returns the rows in a database.
func NewInvitations(db *database.DB) *Invitations { return &Invitations{db} }

// CreateInvitation records an invitation and deletes an earlier invitation of the same
// address to the same workspace, or of the same user.
func (s *Invitations) CreateInvitation(ctx context.Context, i account.Invitation) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM invitations WHERE coalesce(workspace_id, '') = $1 AND email = $2 AND coalesce(user_id, '') = $3`,
			i.Workspace, i.Email, i.User); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO invitations (id, hash, workspace_id, role, email, user_id, created_by, created_at, expires_at)
			VALUES ($1, $2, nullif($3, ''), $4, $5, nullif($6, ''), $7, $8, $9)`,
			i.ID, database.Hex(i.Hash), i.Workspace, i.Role, i.Email, i.User, i.CreatedBy, database.Nanos(i.CreatedAt), database.Nanos(i.ExpiresAt))
		return err
	})
}

// Invitations returns the open invitations to a workspace, newest first.
func (s *Invitations) Invitations(ctx context.Context, ws sandbox.WorkspaceID, now time.Time) ([]account.Invitation, error) {
	return database.Collect(ctx, s.db.Reader(), scanInvitation, "SELECT "+invitationColumns+` FROM invitations
		WHERE workspace_id = $1 AND expires_at > $2 ORDER BY created_at DESC, id`, ws, database.Nanos(now))
}

// InvitationByHash returns the open invitation whose code has the hash. Errors: NotFound.
func (s *Invitations) InvitationByHash(ctx context.Context, hash account.TokenHash, now time.Time) (account.Invitation, error) {
	return openInvitation(ctx, s.db.Reader(), hash, now)
}

func openInvitation(ctx context.Context, q database.Querier, hash account.TokenHash, now time.Time) (account.Invitation, error) {
	return scanInvitation(q.QueryRowContext(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE hash = $1 AND expires_at > $2", database.Hex(hash), database.Nanos(now)))
}

// DeleteInvitation deletes an invitation to a workspace. Errors: NotFound.
func (s *Invitations) DeleteInvitation(ctx context.Context, ws sandbox.WorkspaceID, id string) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "DELETE FROM invitations WHERE workspace_id = $1 AND id = $2", ws, id))
		if err == nil && n == 0 {
			return noInvitation()
		}
		return err
	})
}

// AcceptInvitation consumes an invitation. It creates the user u and its home workspace, or
// sets the password of the invitation's existing user to the password of u, and adds the user to the
// workspace. It returns the user's id. Errors: NotFound; Exists, naming name.
func (s *Invitations) AcceptInvitation(ctx context.Context, hash account.TokenHash, u account.User, home account.Workspace) (id sandbox.UserID, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		i, err := openInvitation(ctx, tx, hash, u.CreatedAt)
		if err != nil {
			return err
		}
		if id = i.User; id == "" {
			id = u.ID // without the address: the user with the code need not be the owner of the address
			if err := createUser(ctx, tx, u, home); err != nil {
				return err
			}
		} else {
			n, err := database.Changed(tx.ExecContext(ctx, "UPDATE users SET password = $2, updated_at = $3 WHERE id = $1 AND disabled_at = 0", id, u.Password, database.Nanos(u.CreatedAt)))
			if err == nil && n == 0 {
				err = noInvitation()
			}
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE user_id = $1", id); err != nil {
				return err
			}
		}
		return join(ctx, tx, i, id, u.CreatedAt)
	})
	return id, err
}

// AcceptInvitationsFor adds a user to all workspaces that have invited its address.
func (s *Invitations) AcceptInvitationsFor(ctx context.Context, user sandbox.UserID, email string, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		list, err := database.Collect(ctx, tx, scanInvitation, "SELECT "+invitationColumns+` FROM invitations
			WHERE email = $1 AND email <> '' AND expires_at > $2`, email, database.Nanos(at))
		for _, i := range list {
			err = errors.Join(err, join(ctx, tx, i, user, at))
		}
		return err
	})
}

// Invited reports whether an address has an open invitation.
func (s *Invitations) Invited(ctx context.Context, email string, now time.Time) (bool, error) {
	return database.Exists(ctx, s.db.Reader(), "SELECT 1 FROM invitations WHERE email = $1 AND email <> '' AND expires_at > $2 LIMIT 1", email, database.Nanos(now))
}

// join deletes the invitation and makes the user a member with the invitation's role.
func join(ctx context.Context, tx *sql.Tx, i account.Invitation, user sandbox.UserID, at time.Time) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM invitations WHERE id = $1", i.ID); err != nil {
		return err
	}
	if i.Workspace == "" {
		return nil
	}
	is, err := database.Exists(ctx, tx, "SELECT 1 FROM members WHERE workspace_id = $1 AND user_id = $2", i.Workspace, user)
	if err != nil || is {
		return err
	}
	return addMember(ctx, tx, i.Workspace, user, i.Role, at)
}

func noInvitation() error {
	return sandbox.Errorf(sandbox.NotFound, "the invitation is unknown, expired or was used")
}

func scanInvitation(row database.Scanner) (account.Invitation, error) {
	var i account.Invitation
	var hash string
	var created, expires int64
	err := row.Scan(&i.ID, &hash, &i.Workspace, &i.Role, &i.Email, &i.User, &i.CreatedBy, &created, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Invitation{}, noInvitation()
	}
	if err == nil {
		i.Hash, err = database.FromHex(hash)
	}
	if err != nil {
		return account.Invitation{}, fmt.Errorf("read invitation: %w", err)
	}
	i.CreatedAt, i.ExpiresAt = database.FromNanos(created), database.FromNanos(expires)
	return i, nil
}
