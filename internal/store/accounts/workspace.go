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

// The workspace and the user of a new installation.
const (
	defaultWorkspace = "default"
	ownerUser        = "owner"
)

// Workspaces are the workspaces.
type Workspaces struct{ db *database.DB }

// NewWorkspaces returns the rows in a database.
func NewWorkspaces(db *database.DB) *Workspaces { return &Workspaces{db} }

// EnsureDefaults returns the default workspace and its owner; it creates them if they do not
// exist. Idempotent, also for concurrent calls.
func (s *Workspaces) EnsureDefaults(ctx context.Context) (ws sandbox.WorkspaceID, user sandbox.UserID, err error) {
	user = ownerUser
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := database.Nanos(time.Now())
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
const named = "(w.id = $1 OR w.slug = $1 AND $2 = 1)"

func isSlug(ref sandbox.WorkspaceID) bool {
	_, id := sandbox.ParseID(string(ref))
	return !id
}

// WorkspaceNamed returns the id of the workspace with that id, or else that slug.
// Errors: NotFound, also while it is being deleted.
func (s *Workspaces) WorkspaceNamed(ctx context.Context, ref sandbox.WorkspaceID) (id sandbox.WorkspaceID, err error) {
	err = s.db.Reader().QueryRowContext(ctx, "SELECT w.id FROM workspaces w WHERE "+named+" AND w.deleting_at = 0 ORDER BY w.id = $1 DESC LIMIT 1",
		ref, database.Number(isSlug(ref))).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", NoWorkspace()
	}
	return id, err
}

// Membership returns the user's membership in the workspace with that id, or else with that
// slug. Errors: NotFound if the user is no member or is disabled, and if the workspace does
// not exist or is being deleted.
func (s *Workspaces) Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error) {
	m := account.Membership{User: user}
	err := s.db.Reader().QueryRowContext(ctx, `SELECT w.id, m.role, u.administrator FROM members m
		JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace_id
		WHERE `+named+` AND m.user_id = $3 AND u.disabled_at = 0 AND w.deleting_at = 0
		ORDER BY w.id = $1 DESC LIMIT 1`, ws, database.Number(isSlug(ws)), user).
		Scan(&m.Workspace, &m.Role, &m.Administrator)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Membership{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return account.Membership{}, fmt.Errorf("look up membership of %s: %w", user, err)
	}
	return m, nil
}

const workspaceColumns = "w.id, w.name, w.slug, w.description, w.created_by, w.created_at, w.updated_at, w.url_access, w.code_scan, w.code_scan_rules, w.audit_output"

// CreateWorkspace records ws with its creator as owner. Errors: Exists, naming slug;
// QuotaExceeded if the creator has created most workspaces, unless most is 0. Workspaces
// that the creator has left count, deleted workspaces do not.
func (s *Workspaces) CreateWorkspace(ctx context.Context, ws account.Workspace, most int) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
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
		VALUES ($1, $2, $3, $4, $5, $6, $6)`, ws.ID, ws.Name, ws.Slug, ws.Description, ws.CreatedBy, database.Nanos(ws.CreatedAt)); err != nil {
		return err
	}
	return addMember(ctx, tx, ws.ID, ws.CreatedBy, account.RoleOwner, ws.CreatedAt)
}

func slugFree(ctx context.Context, tx *sql.Tx, slug string, ws sandbox.WorkspaceID) error {
	taken, err := database.Exists(ctx, tx, "SELECT 1 FROM workspaces WHERE slug = $1 AND id <> $2", slug, ws)
	if err == nil && taken {
		return &sandbox.Error{Code: sandbox.Exists, Field: "slug", Message: fmt.Sprintf("there is a workspace with the slug %q already", slug)}
	}
	return err
}

// Workspace returns a workspace that is not being deleted. Errors: NotFound.
func (s *Workspaces) Workspace(ctx context.Context, id sandbox.WorkspaceID) (account.Workspace, error) {
	return scanWorkspace(s.db.Reader().QueryRowContext(ctx, "SELECT "+workspaceColumns+", '' FROM workspaces w WHERE w.id = $1 AND w.deleting_at = 0", id))
}

// URLAccess returns the least credential that a workspace demands for the management
// routes on the URLs of its sandboxes; "" leaves it to the server. Errors: NotFound.
func (s *Workspaces) URLAccess(ctx context.Context, id sandbox.WorkspaceID) (access sandbox.URLAccess, err error) {
	err = s.db.Reader().QueryRowContext(ctx, "SELECT url_access FROM workspaces WHERE id = $1", id).Scan(&access)
	if errors.Is(err, sql.ErrNoRows) {
		return "", NoWorkspace()
	}
	return access, err
}

// Workspaces returns the workspaces of a user with its roles, by name.
func (s *Workspaces) Workspaces(ctx context.Context, user sandbox.UserID) ([]account.Workspace, error) {
	return database.Collect(ctx, s.db.Reader(), scanWorkspace, "SELECT "+workspaceColumns+`, m.role FROM members m JOIN workspaces w ON w.id = m.workspace_id
		WHERE m.user_id = $1 AND w.deleting_at = 0 ORDER BY w.name, w.id`, user)
}

// Home returns the workspace of a user's requests that name no workspace: its home while it
// is a member there, else the workspace that it joined first. Errors: NotFound.
func (s *Workspaces) Home(ctx context.Context, user sandbox.UserID) (ws sandbox.WorkspaceID, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT m.workspace_id FROM members m JOIN users u ON u.id = m.user_id
		JOIN workspaces w ON w.id = m.workspace_id WHERE m.user_id = $1 AND w.deleting_at = 0
		ORDER BY m.workspace_id = u.home DESC, m.created_at LIMIT 1`, user).Scan(&ws)
	if errors.Is(err, sql.ErrNoRows) {
		return "", sandbox.Errorf(sandbox.NotFound, "the user is in no workspace")
	}
	return ws, err
}

// UpdateWorkspace changes a workspace. Errors: NotFound; Exists, naming slug.
func (s *Workspaces) UpdateWorkspace(ctx context.Context, id sandbox.WorkspaceID, c account.WorkspaceUpdate) (ws account.Workspace, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if c.Slug != nil {
			if err := slugFree(ctx, tx, *c.Slug, id); err != nil {
				return err
			}
			if err := s.db.TellRights(ctx, tx); err != nil { // another workspace may take the old slug
				return err
			}
		}
		ws, err = scanWorkspace(tx.QueryRowContext(ctx, `UPDATE workspaces SET name = coalesce($2, name), slug = coalesce($3, slug),
			description = coalesce($4, description), url_access = coalesce($6, url_access), code_scan = coalesce($7, code_scan),
			code_scan_rules = coalesce($8, code_scan_rules), audit_output = coalesce($9, audit_output), updated_at = $5 WHERE id = $1 AND deleting_at = 0
			RETURNING id, name, slug, description, created_by, created_at, updated_at, url_access, code_scan, code_scan_rules, audit_output, ''`,
			id, c.Name, c.Slug, c.Description, database.Nanos(c.At), c.URLAccess, c.CodeScan, c.CodeScanRules, c.AuditOutput))
		return err
	})
	return ws, err
}

// MarkWorkspaceDeleting records that a workspace is being deleted. From now on no user has
// access to it. Idempotent. Errors: NotFound; Conflict for the first workspace of the
// installation.
func (s *Workspaces) MarkWorkspaceDeleting(ctx context.Context, id sandbox.WorkspaceID, at time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error { return markDeleting(ctx, tx, id, at) })
}

func markDeleting(ctx context.Context, tx *sql.Tx, id sandbox.WorkspaceID, at time.Time) error {
	var first bool
	err := tx.QueryRowContext(ctx, "SELECT is_default FROM workspaces WHERE id = $1", id).Scan(&first)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return NoWorkspace()
	case err != nil:
		return err
	case first:
		return sandbox.Errorf(sandbox.Conflict, "the installation's first workspace cannot be deleted")
	}
	for _, statement := range []string{
		"UPDATE workspaces SET deleting_at = $2, slug = '' WHERE id = $1 AND deleting_at = 0",
		"UPDATE tokens SET revoked_at = $2 WHERE workspace_id = $1 AND revoked_at = 0",
		"DELETE FROM members WHERE workspace_id = $1 AND CAST($2 AS BIGINT) > 0",
		"DELETE FROM invitations WHERE workspace_id = $1 AND CAST($2 AS BIGINT) > 0",
	} {
		if _, err := tx.ExecContext(ctx, statement, id, database.Nanos(at)); err != nil {
			return err
		}
	}
	return nil
}

// DeletingWorkspaces returns the workspaces that are being deleted.
func (s *Workspaces) DeletingWorkspaces(ctx context.Context) ([]sandbox.WorkspaceID, error) {
	return database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (id sandbox.WorkspaceID, err error) { return id, row.Scan(&id) },
		"SELECT id FROM workspaces WHERE deleting_at > 0 ORDER BY deleting_at")
}

// DeleteWorkspace deletes the row of a workspace that is being deleted, if no row refers to
// it any more: the rows of its ended sandboxes and deleted snapshots stay until their
// retention ends, and the row of the workspace, which is invisible, with them. Idempotent.
func (s *Workspaces) DeleteWorkspace(ctx context.Context, id sandbox.WorkspaceID) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM workspaces WHERE id = $1 AND deleting_at > 0
			AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE workspace_id = $1)
			AND NOT EXISTS (SELECT 1 FROM snapshots WHERE workspace_id = $1)`, id)
		return err
	})
}

func scanWorkspace(row database.Scanner) (account.Workspace, error) {
	var w account.Workspace
	var created, updated int64
	err := row.Scan(&w.ID, &w.Name, &w.Slug, &w.Description, &w.CreatedBy, &created, &updated, &w.URLAccess, &w.CodeScan, &w.CodeScanRules, &w.AuditOutput, &w.Role)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Workspace{}, NoWorkspace()
	}
	if err != nil {
		return account.Workspace{}, fmt.Errorf("read workspace: %w", err)
	}
	w.CreatedAt, w.UpdatedAt = database.FromNanos(created), database.FromNanos(updated)
	return w, nil
}

// NoWorkspace is the error about a workspace that does not exist.
func NoWorkspace() error { return sandbox.Errorf(sandbox.NotFound, "there is no such workspace") }
