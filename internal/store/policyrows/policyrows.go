// Package policyrows reads the policies of workspaces from the database.
package policyrows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Rows are the policies in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

var _ codescan.Policies = Rows{}

// New returns the policies in a database.
func New(db *database.DB) Rows { return Rows{db} }

// AuditOutput reports whether the audit log has the outputs of a workspace's commands; a workspace that does not
// exist has none.
func (r Rows) AuditOutput(ctx context.Context, ws sandbox.WorkspaceID) (on bool, err error) {
	err = r.db.Reader().QueryRowContext(ctx, "SELECT audit_output FROM workspaces WHERE id = $1", ws).Scan(&on)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("read the audit policy of workspace %s: %w", ws, err)
	}
	return on, nil
}

// CodeScan returns the policy of a workspace for code. Errors: NotFound.
func (r Rows) CodeScan(ctx context.Context, ws sandbox.WorkspaceID) (codescan.Policy, error) {
	var p codescan.Policy
	err := r.db.Reader().QueryRowContext(ctx, "SELECT code_scan, code_scan_rules FROM workspaces WHERE id = $1", ws).Scan(&p.Mode, &p.Rules)
	if errors.Is(err, sql.ErrNoRows) {
		return p, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return p, fmt.Errorf("read the code scan policy of workspace %s: %w", ws, err)
	}
	return p, nil
}
