package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Prefix starts every token, so that people and secret scanners recognise one.
	Prefix = "mbx_"
	// DescriptionMax is the longest description of a token, in characters.
	DescriptionMax = 200

	secretBytes = 32
)

// secretEncoding gives lower case letters and digits, without padding.
var secretEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// secretLength is the number of characters after Prefix.
var secretLength = secretEncoding.EncodedLen(secretBytes)

// NewSecret returns a new token text.
func NewSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return Prefix + secretEncoding.EncodeToString(b[:])
}

// Hash returns what is stored of a token text.
func Hash(secret string) sandbox.TokenHash { return sha256.Sum256([]byte(secret)) }

// wellFormed reports whether s can be a token at all, which spares a lookup for
// the keys of other products.
func wellFormed(s string) bool {
	rest, ok := strings.CutPrefix(s, Prefix)
	return ok && len(rest) == secretLength
}

// TokenStore keeps tokens.
type TokenStore interface {
	// CreateToken records t.
	CreateToken(ctx context.Context, t sandbox.Token) error
	// TokenByHash returns the token with that hash, also when it is expired or
	// revoked, and code NotFound when there is none.
	TokenByHash(ctx context.Context, hash sandbox.TokenHash) (sandbox.Token, error)
	// ListTokens returns the tokens of a user in a workspace, newest first, without the revoked ones.
	ListTokens(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) ([]sandbox.Token, error)
	// RevokeToken marks a token of that user and workspace as revoked and returns
	// it, or code NotFound. Idempotent.
	RevokeToken(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, id string, at time.Time) (sandbox.Token, error)
	// TouchToken records when a token was last used.
	TouchToken(ctx context.Context, id string, at time.Time) error
}

// CreateToken makes a token for the identity's user in its workspace and returns
// its text, which cannot be had again. lifetime 0 means that it never expires.
//
// Errors: Invalid for a description that is too long or holds control
// characters, and for a negative lifetime.
func (a *Authenticator) CreateToken(ctx context.Context, id Identity, description string, lifetime time.Duration) (string, sandbox.Token, error) {
	if err := checkDescription(description); err != nil {
		return "", sandbox.Token{}, err
	}
	if lifetime < 0 {
		return "", sandbox.Token{}, sandbox.InvalidField("expires_in_seconds", "must not be negative")
	}
	secret := NewSecret()
	now := time.Now().UTC()
	t := sandbox.Token{
		ID:          uuid.Must(uuid.NewV7()).String(),
		Hash:        Hash(secret),
		Workspace:   id.Workspace,
		User:        id.User,
		Description: description,
		CreatedAt:   now,
	}
	if lifetime > 0 {
		t.ExpiresAt = now.Add(lifetime)
	}
	if err := a.tokens.CreateToken(ctx, t); err != nil {
		return "", sandbox.Token{}, fmt.Errorf("record token %s: %w", t.ID, err)
	}
	return secret, t, nil
}

// ListTokens returns the good tokens of the identity's user in its workspace, newest first.
func (a *Authenticator) ListTokens(ctx context.Context, id Identity) ([]sandbox.Token, error) {
	return a.tokens.ListTokens(ctx, id.Workspace, id.User)
}

// RevokeToken makes a token useless at once. Errors: NotFound when the
// identity's user has no such token in its workspace. Idempotent.
func (a *Authenticator) RevokeToken(ctx context.Context, id Identity, token string) error {
	t, err := a.tokens.RevokeToken(ctx, id.Workspace, id.User, token, time.Now().UTC())
	if err != nil {
		return err
	}
	a.cache.Invalidate(t.Hash)
	return nil
}

func checkDescription(s string) error {
	n := 0
	for _, r := range s {
		if unicode.IsControl(r) {
			return sandbox.InvalidField("description", "must not hold control characters")
		}
		n++
	}
	if n > DescriptionMax {
		return sandbox.InvalidField("description", "has %d characters, the maximum is %d", n, DescriptionMax)
	}
	return nil
}
