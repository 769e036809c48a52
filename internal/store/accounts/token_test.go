package accounts_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestTokens(t *testing.T) {
	s, _, ws, user := openStore(t)
	now := time.Now().UTC()
	first := account.Token{ID: "1", Hash: account.TokenHash{1}, Workspace: ws, User: user, Description: "d", CreatedAt: now, ExpiresAt: now.Add(time.Hour)}
	second := account.Token{ID: "2", Hash: account.TokenHash{2}, Workspace: ws, User: user, CreatedAt: now.Add(time.Second)}
	for _, tok := range []account.Token{first, second} {
		if err := s.Tokens.CreateToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Tokens.CreateToken(t.Context(), account.Token{ID: "3", Hash: first.Hash, Workspace: ws, User: user}); err == nil {
		t.Error("two tokens with the same hash")
	}
	got, err := s.Tokens.TokenByHash(t.Context(), first.Hash)
	if d := cmp.Diff(first, got); err != nil || d != "" {
		t.Errorf("TokenByHash: %v, differs (-want +got):\n%s", err, d)
	}
	if _, err := s.Tokens.TokenByHash(t.Context(), account.TokenHash{9}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("unknown token: %v, want code not_found", err)
	}
	list, err := s.Tokens.ListTokens(t.Context(), ws, user)
	if d := cmp.Diff([]account.Token{second, first}, list); err != nil || d != "" {
		t.Errorf("ListTokens: %v, differs (-want +got):\n%s", err, d)
	}
	for _, at := range []time.Time{now, now.Add(time.Minute)} { // the second changes nothing
		revoked, err := s.Tokens.RevokeToken(t.Context(), ws, user, "1", at)
		if err != nil || !revoked.RevokedAt.Equal(now) {
			t.Errorf("RevokeToken at %s = revoked %s, %v, want %s", at, revoked.RevokedAt, err, now)
		}
	}
	if _, err := s.Tokens.RevokeToken(t.Context(), sandbox.NewWorkspaceID(), user, "2", now); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("revoke from another workspace: %v, want code not_found", err)
	}
	if err := s.Tokens.TouchToken(t.Context(), "2", now); err != nil {
		t.Fatal(err)
	}
	second.LastUsedAt = now
	list, err = s.Tokens.ListTokens(t.Context(), ws, user)
	if d := cmp.Diff([]account.Token{second}, list); err != nil || d != "" {
		t.Errorf("ListTokens without the revoked: %v, differs (-want +got):\n%s", err, d)
	}
}
