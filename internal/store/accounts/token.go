package accounts

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const tokenColumns = "id, hash, workspace_id, user_id, description, created_at, last_used_at, expires_at, revoked_at, scopes, workspace_only"

// Tokens are the API tokens.
type Tokens struct{ db *database.DB }

// NewTokens returns the rows in a database.
func NewTokens(db *database.DB) *Tokens { return &Tokens{db} }

// CreateToken records t.
func (s *Tokens) CreateToken(ctx context.Context, t account.Token) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens ("+tokenColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
			t.ID, database.Hex(t.Hash), t.Workspace, t.User, t.Description,
			database.Nanos(t.CreatedAt), database.Nanos(t.LastUsedAt), database.Nanos(t.ExpiresAt), database.Nanos(t.RevokedAt),
			joinScopes(t.Scopes), database.Number(t.WorkspaceOnly))
		return err
	})
	if err != nil {
		return fmt.Errorf("record token %s: %w", t.ID, err)
	}
	return nil
}

// TokenByHash returns the token with that hash, also when it is expired or
// revoked. Errors: NotFound.
func (s *Tokens) TokenByHash(ctx context.Context, hash account.TokenHash) (account.Token, error) {
	row := s.db.Reader().QueryRowContext(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE hash = $1", database.Hex(hash))
	return scanToken(row)
}

// TokenByID returns a token, also when it is expired or revoked. Errors: NotFound.
func (s *Tokens) TokenByID(ctx context.Context, id string) (account.Token, error) {
	return scanToken(s.db.Reader().QueryRowContext(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE id = $1", id))
}

// ListTokens returns the tokens of a user in a workspace, newest first, without revoked tokens.
func (s *Tokens) ListTokens(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) ([]account.Token, error) {
	rows, err := s.db.Reader().QueryContext(ctx, "SELECT "+tokenColumns+` FROM tokens
		WHERE workspace_id = $1 AND user_id = $2 AND revoked_at = 0 ORDER BY created_at DESC, id DESC`, ws, user)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var tokens []account.Token
	for rows.Next() {
		t, err := scanToken(rows)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// HadTokens reports whether a user has or had a token, including expired and revoked tokens.
func (s *Tokens) HadTokens(ctx context.Context, user sandbox.UserID) (bool, error) {
	had, err := database.Exists(ctx, s.db.Reader(), "SELECT 1 FROM tokens WHERE user_id = $1 LIMIT 1", user)
	if err != nil {
		return false, fmt.Errorf("look for tokens of user %s: %w", user, err)
	}
	return had, nil
}

// RevokeToken marks a token of that user and workspace as revoked and returns it. If it was
// revoked before, the time of that revocation stays. Errors: NotFound.
func (s *Tokens) RevokeToken(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, id string, at time.Time) (t account.Token, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, `UPDATE tokens SET revoked_at = CASE WHEN revoked_at = 0 THEN $1 ELSE revoked_at END
			WHERE id = $2 AND workspace_id = $3 AND user_id = $4 RETURNING `+tokenColumns, database.Nanos(at), id, ws, user)
		t, err = scanToken(row)
		return err
	})
	if err != nil {
		return account.Token{}, fmt.Errorf("revoke token: %w", err)
	}
	return t, nil
}

// TouchToken records the last use of a token. It ignores deleted tokens.
func (s *Tokens) TouchToken(ctx context.Context, id string, at time.Time) error {
	err := s.db.Note(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE tokens SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1", database.Nanos(at), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("touch token %s: %w", id, err)
	}
	return nil
}

// joinScopes returns the stored form of scopes.
func joinScopes(scopes []account.Permission) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, " ")
}

func scanToken(row database.Scanner) (account.Token, error) {
	var t account.Token
	var hash, scopes string
	var created, used, expires, revoked int64
	err := row.Scan(&t.ID, &hash, &t.Workspace, &t.User, &t.Description, &created, &used, &expires, &revoked, &scopes, &t.WorkspaceOnly)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Token{}, sandbox.Errorf(sandbox.NotFound, "there is no such token")
	}
	if err != nil {
		return account.Token{}, fmt.Errorf("read token: %w", err)
	}
	if n, err := hex.Decode(t.Hash[:], []byte(hash)); err != nil || n != len(t.Hash) {
		return account.Token{}, fmt.Errorf("read token %s: its hash is damaged", t.ID)
	}
	for _, scope := range strings.Fields(scopes) {
		t.Scopes = append(t.Scopes, account.Permission(scope))
	}
	t.CreatedAt, t.LastUsedAt = database.FromNanos(created), database.FromNanos(used)
	t.ExpiresAt, t.RevokedAt = database.FromNanos(expires), database.FromNanos(revoked)
	return t, nil
}
