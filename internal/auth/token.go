package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Prefix starts every token, so that people and secret scanners recognise them.
	Prefix = "mbx_"
	// Prefixes of the other secrets: the two tokens of a session, and the code of an invitation.
	prefixAccess     = "mbs_"
	prefixRefresh    = "mbr_"
	prefixInvitation = "mbi_"
	// DescriptionMax is the maximum length of a token's description, in characters.
	DescriptionMax = 200

	secretBytes = 32
)

// secretEncoding uses lower case letters and digits, without padding.
var secretEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// secretLength is the number of characters after the prefix.
var secretLength = secretEncoding.EncodedLen(secretBytes)

// NewSecret returns a new token text.
func NewSecret() string { return secret(Prefix) }

func secret(prefix string) string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return prefix + secretEncoding.EncodeToString(b[:])
}

// Hash returns the hash of a token text, the form in which the database has it.
func Hash(secret string) account.TokenHash { return sha256.Sum256([]byte(secret)) }

// formed reports whether s has the form of a secret with that prefix. The check saves lookups for
// keys of other products.
func formed(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && len(rest) == secretLength
}

// IsBearer reports whether s has the form of a token of Modbox that a request may carry.
func IsBearer(s string) bool {
	return strings.HasPrefix(s, Prefix) || strings.HasPrefix(s, prefixAccess)
}

// TokenStore stores tokens.
type TokenStore interface {
	// CreateToken records t.
	CreateToken(ctx context.Context, t account.Token) error
	// TokenByHash returns the token with that hash, even when it is expired or revoked. Errors:
	// NotFound.
	TokenByHash(ctx context.Context, hash account.TokenHash) (account.Token, error)
	// TokenByID returns a token, even when it is expired or revoked. Errors: NotFound.
	TokenByID(ctx context.Context, id string) (account.Token, error)
	// ListTokens returns the tokens of a user in a workspace, newest first, except revoked tokens.
	ListTokens(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) ([]account.Token, error)
	// HadTokens reports whether the user has or ever had an API token, in any workspace.
	HadTokens(ctx context.Context, user sandbox.UserID) (bool, error)
	// RevokeToken marks a token of that user and workspace as revoked and returns it. Idempotent.
	// Errors: NotFound.
	RevokeToken(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, id string, at time.Time) (account.Token, error)
	// TouchToken records when a token was last used.
	TouchToken(ctx context.Context, id string, at time.Time) error
}

// TokenRequest describes a token to create. Its zero value is a token with all permissions of its
// creator that never expires.
type TokenRequest struct {
	Description string
	// Lifetime is how long the token works; 0 means for ever.
	Lifetime time.Duration
	// Scopes limit the token; empty means the scopes of the creator.
	Scopes []account.Permission
	// WorkspaceOnly limits the token to its workspace.
	WorkspaceOnly bool
}

// CreateToken creates a token for the identity's user in its workspace and returns its text, which
// cannot be retrieved again. A token created with a limited token is limited at least as much.
//
// Errors: Invalid for a description that is too long or contains control characters, a negative
// lifetime and an unknown scope; Forbidden for a scope that the identity's own token lacks.
func (a *Authenticator) CreateToken(ctx context.Context, id Identity, req TokenRequest) (string, account.Token, error) {
	if err := sandbox.CheckText("description", req.Description, 0, DescriptionMax); err != nil {
		return "", account.Token{}, err
	}
	if req.Lifetime < 0 {
		return "", account.Token{}, sandbox.InvalidField("expires_in_seconds", "must not be negative")
	}
	scopes, err := narrow(id, req.Scopes)
	if err != nil {
		return "", account.Token{}, err
	}
	text := NewSecret()
	now := time.Now().UTC()
	t := account.Token{
		ID:            uuid.Must(uuid.NewV7()).String(),
		Hash:          Hash(text),
		Workspace:     id.Workspace,
		User:          id.User,
		WorkspaceOnly: req.WorkspaceOnly || id.WorkspaceOnly,
		Scopes:        scopes,
		Description:   req.Description,
		CreatedAt:     now,
	}
	if req.Lifetime > 0 {
		t.ExpiresAt = now.Add(req.Lifetime)
	}
	if !id.Expires.IsZero() && (t.ExpiresAt.IsZero() || t.ExpiresAt.After(id.Expires)) {
		return "", account.Token{}, &sandbox.Error{Code: sandbox.Forbidden, Field: "expires_in_seconds",
			Message: "this token expires at " + id.Expires.Format(time.RFC3339) + "; a token that it creates must not expire later"}
	}
	if err := a.store.Tokens.CreateToken(ctx, t); err != nil {
		return "", account.Token{}, fmt.Errorf("record token %s: %w", t.ID, err)
	}
	audit.FromContext(ctx).Made("token", t.ID, t.Description)
	return text, t, nil
}

// narrow returns the scopes of a token that id creates, in the order of [account.Permissions] and
// without duplicates.
func narrow(id Identity, asked []account.Permission) ([]account.Permission, error) {
	if len(asked) == 0 {
		return id.Scopes, nil
	}
	for i, p := range asked {
		if !p.Valid() {
			return nil, sandbox.InvalidField(fmt.Sprintf("scopes.%d", i), "%q is not a scope; the scopes are %s", p, list(account.Permissions))
		}
		if !scoped(id.Scopes, p) {
			return nil, &sandbox.Error{Code: sandbox.Forbidden, Field: fmt.Sprintf("scopes.%d", i),
				Message: fmt.Sprintf("this token lacks the scope %s and cannot give it to another", p)}
		}
	}
	var scopes []account.Permission
	for _, p := range account.Permissions {
		if slices.Contains(asked, p) {
			scopes = append(scopes, p)
		}
	}
	return scopes, nil
}

func list[T ~string](items []T) string {
	texts := make([]string, len(items))
	for i, s := range items {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

// ListTokens returns the valid tokens of the identity's user in its workspace, newest first.
func (a *Authenticator) ListTokens(ctx context.Context, id Identity) ([]account.Token, error) {
	return a.store.Tokens.ListTokens(ctx, id.Workspace, id.User)
}

// RevokeToken revokes a token immediately; token is its ID or its text. Idempotent. Errors:
// NotFound when the identity's user has no such token in its workspace.
func (a *Authenticator) RevokeToken(ctx context.Context, id Identity, token string) error {
	if formed(token, Prefix) {
		t, err := a.store.Tokens.TokenByHash(ctx, Hash(token))
		if err != nil {
			return err
		}
		token = t.ID
	}
	audit.FromContext(ctx).Object("token", token, "")
	t, err := a.store.Tokens.RevokeToken(ctx, id.Workspace, id.User, token, time.Now().UTC())
	if err != nil {
		return err
	}
	a.forgetToken(t.Hash)
	return nil
}
