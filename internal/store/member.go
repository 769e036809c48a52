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

const workspaceColumns = "w.id, w.name, w.slug, w.description, w.created_by, w.created_at, w.updated_at, w.url_access"

// CreateWorkspace records ws with its creator as owner. Errors: Exists, naming slug;
// QuotaExceeded if the creator has created most workspaces, unless most is 0. Workspaces
// that the creator has left count, deleted workspaces do not.
func (s *Store) CreateWorkspace(ctx context.Context, ws account.Workspace, most int) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if most > 0 {
			var made int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM workspaces WHERE created_by = $1 AND deleting_at = 0", ws.CreatedBy).Scan(&made); err != nil {
				return err
			}
			if made >= most {
				return sandbox.Errorf(sandbox.QuotaExceeded, "you have made %d workspaces, and no more are allowed; delete some, or ask an administrator", made)
			}
		}
		return createWorkspace(ctx, tx, ws)
	})
}

func createWorkspace(ctx context.Context, tx *sql.Tx, ws account.Workspace) error {
	if err := slugFree(ctx, tx, ws.Slug, ws.ID); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO workspaces (id, name, slug, description, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6)`, ws.ID, ws.Name, ws.Slug, ws.Description, ws.CreatedBy, nanos(ws.CreatedAt)); err != nil {
		return err
	}
	return addMember(ctx, tx, ws.ID, ws.CreatedBy, account.RoleOwner, ws.CreatedAt)
}

func slugFree(ctx context.Context, tx *sql.Tx, slug string, ws sandbox.WorkspaceID) error {
	taken, err := exists(ctx, tx, "SELECT 1 FROM workspaces WHERE slug = $1 AND id <> $2", slug, ws)
	if err == nil && taken {
		return &sandbox.Error{Code: sandbox.Exists, Field: "slug", Message: fmt.Sprintf("there is a workspace with the slug %q already", slug)}
	}
	return err
}

func addMember(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role, at time.Time) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)", ws, user, role, nanos(at))
	return err
}

// Workspace returns a workspace that is not being deleted. Errors: NotFound.
func (s *Store) Workspace(ctx context.Context, id sandbox.WorkspaceID) (account.Workspace, error) {
	return scanWorkspace(s.reader.QueryRowContext(ctx, "SELECT "+workspaceColumns+", '' FROM workspaces w WHERE w.id = $1 AND w.deleting_at = 0", id))
}

// URLAccess returns the least credential that a workspace demands for the management
// routes on the URLs of its sandboxes; "" leaves it to the server. Errors: NotFound.
func (s *Store) URLAccess(ctx context.Context, id sandbox.WorkspaceID) (access sandbox.URLAccess, err error) {
	err = s.reader.QueryRowContext(ctx, "SELECT url_access FROM workspaces WHERE id = $1", id).Scan(&access)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noWorkspace()
	}
	return access, err
}

// Workspaces returns the workspaces of a user with its roles, by name.
func (s *Store) Workspaces(ctx context.Context, user sandbox.UserID) ([]account.Workspace, error) {
	return collect(ctx, s.reader, scanWorkspace, "SELECT "+workspaceColumns+`, m.role FROM members m JOIN workspaces w ON w.id = m.workspace_id
		WHERE m.user_id = $1 AND w.deleting_at = 0 ORDER BY w.name, w.id`, user)
}

// Home returns the workspace of a user's requests that name no workspace: its home while it
// is a member there, else the workspace that it joined first. Errors: NotFound.
func (s *Store) Home(ctx context.Context, user sandbox.UserID) (ws sandbox.WorkspaceID, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT m.workspace_id FROM members m JOIN users u ON u.id = m.user_id
		JOIN workspaces w ON w.id = m.workspace_id WHERE m.user_id = $1 AND w.deleting_at = 0
		ORDER BY m.workspace_id = u.home DESC, m.created_at LIMIT 1`, user).Scan(&ws)
	if errors.Is(err, sql.ErrNoRows) {
		return "", sandbox.Errorf(sandbox.NotFound, "the user is in no workspace")
	}
	return ws, err
}

// UpdateWorkspace changes a workspace. Errors: NotFound; Exists, naming slug.
func (s *Store) UpdateWorkspace(ctx context.Context, id sandbox.WorkspaceID, c account.WorkspaceUpdate) (ws account.Workspace, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if c.Slug != nil {
			if err := slugFree(ctx, tx, *c.Slug, id); err != nil {
				return err
			}
		}
		ws, err = scanWorkspace(tx.QueryRowContext(ctx, `UPDATE workspaces SET name = coalesce($2, name), slug = coalesce($3, slug),
			description = coalesce($4, description), url_access = coalesce($6, url_access), updated_at = $5 WHERE id = $1 AND deleting_at = 0
			RETURNING id, name, slug, description, created_by, created_at, updated_at, url_access, ''`, id, c.Name, c.Slug, c.Description, nanos(c.At), c.URLAccess))
		return err
	})
	return ws, err
}

// MarkWorkspaceDeleting records that a workspace is being deleted. From now on no user has
// access to it. Idempotent. Errors: NotFound; Conflict for the first workspace of the
// installation.
func (s *Store) MarkWorkspaceDeleting(ctx context.Context, id sandbox.WorkspaceID, at time.Time) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return markDeleting(ctx, tx, id, at) })
}

func markDeleting(ctx context.Context, tx *sql.Tx, id sandbox.WorkspaceID, at time.Time) error {
	var first bool
	err := tx.QueryRowContext(ctx, "SELECT is_default FROM workspaces WHERE id = $1", id).Scan(&first)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return noWorkspace()
	case err != nil:
		return err
	case first:
		return sandbox.Errorf(sandbox.Conflict, "the installation's first workspace cannot be deleted")
	}
	for _, statement := range []string{
		"UPDATE workspaces SET deleting_at = $2, slug = '' WHERE id = $1 AND deleting_at = 0",
		"UPDATE tokens SET revoked_at = $2 WHERE workspace_id = $1 AND revoked_at = 0",
		"DELETE FROM members WHERE workspace_id = $1 AND $2 > 0",
		"DELETE FROM invitations WHERE workspace_id = $1 AND $2 > 0",
	} {
		if _, err := tx.ExecContext(ctx, statement, id, nanos(at)); err != nil {
			return err
		}
	}
	return nil
}

// DeletingWorkspaces returns the workspaces that are being deleted.
func (s *Store) DeletingWorkspaces(ctx context.Context) ([]sandbox.WorkspaceID, error) {
	return collect(ctx, s.reader, func(row scanner) (id sandbox.WorkspaceID, err error) { return id, row.Scan(&id) },
		"SELECT id FROM workspaces WHERE deleting_at > 0 ORDER BY deleting_at")
}

// DeleteWorkspace deletes the row of a workspace that is being deleted, if no row refers to
// it any more: the rows of its ended sandboxes and deleted snapshots stay until their
// retention ends, and the row of the workspace, which is invisible, with them. Idempotent.
func (s *Store) DeleteWorkspace(ctx context.Context, id sandbox.WorkspaceID) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM workspaces WHERE id = $1 AND deleting_at > 0
			AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE workspace_id = $1)
			AND NOT EXISTS (SELECT 1 FROM snapshots WHERE workspace_id = $1)`, id)
		return err
	})
}

// Members returns the members of a workspace in the order in which they joined.
func (s *Store) Members(ctx context.Context, ws sandbox.WorkspaceID) ([]account.Member, error) {
	return collect(ctx, s.reader, scanMember, `SELECT u.id, u.name, u.email, m.role, m.created_at FROM members m JOIN users u ON u.id = m.user_id
		WHERE m.workspace_id = $1 ORDER BY m.created_at, u.id`, ws)
}

// Member returns a member of a workspace. Errors: NotFound.
func (s *Store) Member(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) (account.Member, error) {
	return scanMember(s.reader.QueryRowContext(ctx, `SELECT u.id, u.name, u.email, m.role, m.created_at FROM members m
		JOIN users u ON u.id = m.user_id WHERE m.workspace_id = $1 AND m.user_id = $2`, ws, user))
}

// AddMember makes a user a member. Errors: Exists if it is a member already.
func (s *Store) AddMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role, at time.Time) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		is, err := exists(ctx, tx, "SELECT 1 FROM members WHERE workspace_id = $1 AND user_id = $2", ws, user)
		if err == nil && is {
			return sandbox.Errorf(sandbox.Exists, "the user is a member of this workspace already")
		}
		return errors.Join(err, addMember(ctx, tx, ws, user, role, at))
	})
}

// SetRole changes the role of a member and deletes the invitations that the member made.
// Errors: NotFound; Conflict if the workspace would have no owner.
func (s *Store) SetRole(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := changed(tx.ExecContext(ctx, "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2", ws, user, role))
		if err == nil && n == 0 {
			return noMember()
		}
		return errors.Join(err, withdrawInvitations(ctx, tx, ws, user), owned(ctx, tx, ws))
	})
}

// RemoveMember deletes a membership and the invitations that the user made, and revokes its
// tokens for that workspace. Errors: NotFound; Conflict if the workspace would have no owner.
func (s *Store) RemoveMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, at time.Time) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := changed(tx.ExecContext(ctx, "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2", ws, user))
		if err == nil && n == 0 {
			return noMember()
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE tokens SET revoked_at = $3 WHERE workspace_id = $1 AND user_id = $2 AND revoked_at = 0", ws, user, nanos(at)); err != nil {
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
	ok, err := exists(ctx, tx, "SELECT 1 FROM members WHERE workspace_id = $1 AND role = 'owner' LIMIT 1", ws)
	if err == nil && !ok {
		return sandbox.Errorf(sandbox.Conflict, "a workspace needs an owner; make another member one first")
	}
	return err
}

func noMember() error    { return sandbox.Errorf(sandbox.NotFound, "there is no such member") }
func noWorkspace() error { return sandbox.Errorf(sandbox.NotFound, "there is no such workspace") }

func scanWorkspace(row scanner) (account.Workspace, error) {
	var w account.Workspace
	var created, updated int64
	err := row.Scan(&w.ID, &w.Name, &w.Slug, &w.Description, &w.CreatedBy, &created, &updated, &w.URLAccess, &w.Role)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Workspace{}, noWorkspace()
	}
	if err != nil {
		return account.Workspace{}, fmt.Errorf("read workspace: %w", err)
	}
	w.CreatedAt, w.UpdatedAt = fromNanos(created), fromNanos(updated)
	return w, nil
}

func scanMember(row scanner) (account.Member, error) {
	var m account.Member
	var created int64
	err := row.Scan(&m.User, &m.Name, &m.Email, &m.Role, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Member{}, noMember()
	}
	if err != nil {
		return account.Member{}, fmt.Errorf("read member: %w", err)
	}
	m.CreatedAt = fromNanos(created)
	return m, nil
}
