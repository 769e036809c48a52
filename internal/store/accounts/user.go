package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const userColumns = "id, name, email, administrator, password, home, created_at, updated_at, disabled_at"

// Users are the users of the installation.
type Users struct{ db *database.DB }

// NewUsers returns the rows in a database.
func NewUsers(db *database.DB) *Users { return &Users{db} }

// CreateUser records u and its home workspace, whose owner is u. Errors: Exists, naming
// name, email or slug.
func (s *Users) CreateUser(ctx context.Context, u account.User, home account.Workspace) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error { return createUser(ctx, tx, u, home) })
	if err != nil {
		return fmt.Errorf("record user %s: %w", u.Name, err)
	}
	return nil
}

func createUser(ctx context.Context, tx *sql.Tx, u account.User, home account.Workspace) error {
	for _, c := range []struct{ field, query, value string }{
		{"name", "SELECT 1 FROM users WHERE name = $1", u.Name},
		{"email", "SELECT 1 FROM users WHERE email = $1 AND email <> ''", u.Email},
	} {
		if taken, err := database.Exists(ctx, tx, c.query, c.value); err != nil {
			return err
		} else if taken {
			return &sandbox.Error{Code: sandbox.Exists, Field: c.field, Message: fmt.Sprintf("there is a user with %q already", c.value)}
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO users ("+userColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)",
		u.ID, u.Name, u.Email, database.Number(u.Administrator), u.Password, home.ID, database.Nanos(u.CreatedAt), database.Nanos(u.CreatedAt)); err != nil {
		return err
	}
	return createWorkspace(ctx, tx, home)
}

// User returns the user with that id. Errors: NotFound.
func (s *Users) User(ctx context.Context, id sandbox.UserID) (account.User, error) {
	return scanUser(s.db.Reader().QueryRowContext(ctx, "SELECT "+userColumns+" FROM users WHERE id = $1", id))
}

// UserByLogin returns the user with that name, or that e-mail address in lower
// case. Errors: NotFound.
func (s *Users) UserByLogin(ctx context.Context, login string) (account.User, error) {
	return scanUser(s.db.Reader().QueryRowContext(ctx, "SELECT "+userColumns+" FROM users WHERE name = $1 OR email = $1 AND email <> ''", login))
}

// UserByIdentity returns the user that a provider identifies by subject. Errors: NotFound.
func (s *Users) UserByIdentity(ctx context.Context, provider, subject string) (account.User, error) {
	return scanUser(s.db.Reader().QueryRowContext(ctx, "SELECT "+userColumns+` FROM users WHERE id =
		(SELECT user_id FROM identities WHERE provider = $1 AND subject = $2)`, provider, subject))
}

// LinkIdentity records the user that a provider identifies by subject. Idempotent for the same user.
func (s *Users) LinkIdentity(ctx context.Context, provider, subject string, user sandbox.UserID, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO identities (provider, subject, user_id, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (provider, subject) DO NOTHING`, provider, subject, user, database.Nanos(at))
		return err
	})
}

// Users returns a page of the users, by name. Errors: Invalid, naming limit or cursor.
func (s *Users) Users(ctx context.Context, r page.Request) (page.Page[account.User], error) {
	list := database.Listing[account.User]{
		Order: "name", Columns: []string{"name"},
		Key:  func(u account.User) []any { return []any{u.Name} },
		Read: database.Collector(s.db.Reader(), scanUser),
	}
	return list.Page(ctx, r, "SELECT "+userColumns+" FROM users", database.Query{})
}

// UpdateUser changes a user. A new password ends its sessions except c.KeepSession; disabling
// the user ends all its sessions. Errors: NotFound; Conflict if no administrator would remain.
func (s *Users) UpdateUser(ctx context.Context, id sandbox.UserID, c account.UserUpdate) (u account.User, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if u, err = scanUser(tx.QueryRowContext(ctx, "SELECT "+userColumns+" FROM users WHERE id = $1", id)); err != nil {
			return err
		}
		u.UpdatedAt = c.At.UTC()
		if c.Password != nil {
			u.Password = *c.Password
		}
		if c.Administrator != nil {
			u.Administrator = *c.Administrator
		}
		if c.Disabled != nil && *c.Disabled != !u.DisabledAt.IsZero() {
			u.DisabledAt = time.Time{}
			if *c.Disabled {
				u.DisabledAt = u.UpdatedAt
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE users SET password = $2, administrator = $3, disabled_at = $4, updated_at = $5 WHERE id = $1`,
			id, u.Password, database.Number(u.Administrator), database.Nanos(u.DisabledAt), database.Nanos(u.UpdatedAt)); err != nil {
			return err
		}
		keep := c.KeepSession
		if !u.DisabledAt.IsZero() {
			keep = ""
		}
		if c.Password != nil || !u.DisabledAt.IsZero() {
			if _, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE user_id = $1 AND id <> $2", id, keep); err != nil {
				return err
			}
		}
		return administered(ctx, tx, "")
	})
	return u, err
}

// administered returns code Conflict if no other user is an administrator.
func administered(ctx context.Context, tx *sql.Tx, beside sandbox.UserID) error {
	ok, err := database.Exists(ctx, tx, "SELECT 1 FROM users WHERE administrator = 1 AND disabled_at = 0 AND id <> $1 LIMIT 1", beside)
	if err == nil && !ok {
		return sandbox.Errorf(sandbox.Conflict, "this is the last administrator; make another one first")
	}
	return err
}

// DeleteUser deletes a user, its tokens, sessions and memberships, and marks the workspaces
// of which it is the only member for deletion, see MarkWorkspaceDeleting. Errors: NotFound;
// Conflict if it is the last administrator, or the last owner of another workspace.
func (s *Users) DeleteUser(ctx context.Context, id sandbox.UserID, alone []sandbox.WorkspaceID, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, ws := range alone {
			if err := markDeleting(ctx, tx, ws, at); err != nil {
				return err
			}
		}
		var workspace string
		err := tx.QueryRowContext(ctx, `SELECT w.name FROM members m JOIN workspaces w ON w.id = m.workspace_id
			WHERE m.user_id = $1 AND m.role = 'owner' AND NOT EXISTS
			(SELECT 1 FROM members o WHERE o.workspace_id = m.workspace_id AND o.role = 'owner' AND o.user_id <> $1) LIMIT 1`, id).Scan(&workspace)
		if err == nil {
			return sandbox.Errorf(sandbox.Conflict, "it is the last owner of the workspace %q; make another owner first", workspace)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if is, err := database.Exists(ctx, tx, "SELECT 1 FROM users WHERE id = $1", id); err != nil {
			return err
		} else if !is {
			return noUser()
		}
		// The creator of a workspace is only a note in its row; another user replaces it.
		if _, err := tx.ExecContext(ctx, `UPDATE workspaces SET created_by = coalesce((SELECT user_id FROM members
			WHERE workspace_id = workspaces.id AND role = 'owner' AND user_id <> $1 LIMIT 1),
			(SELECT id FROM users WHERE administrator = 1 AND id <> $1 LIMIT 1), created_by) WHERE created_by = $1`, id); err != nil {
			return err
		}
		if err := administered(ctx, tx, id); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM users WHERE id = $1", id)
		return err
	})
}

func noUser() error { return sandbox.Errorf(sandbox.NotFound, "there is no such user") }

func scanUser(row database.Scanner) (account.User, error) {
	var u account.User
	var created, updated, disabled int64
	err := row.Scan(&u.ID, &u.Name, &u.Email, &u.Administrator, &u.Password, &u.Home, &created, &updated, &disabled)
	if errors.Is(err, sql.ErrNoRows) {
		return account.User{}, noUser()
	}
	if err != nil {
		return account.User{}, fmt.Errorf("read user: %w", err)
	}
	u.CreatedAt, u.UpdatedAt, u.DisabledAt = database.FromNanos(created), database.FromNanos(updated), database.FromNanos(disabled)
	return u, nil
}
