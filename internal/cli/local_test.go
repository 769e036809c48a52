package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

// stateDir returns a state directory with a database, as of a running server.
func stateDir(t *testing.T) (string, *store.Store) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, statedir.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, st
}

func TestTokenWithoutAToken(t *testing.T) {
	dir, st := stateDir(t)
	a, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	r := invoke(t, nil, "", "token", "create", "found again", "--state-dir", dir, "--expires-in", "1h")
	if r.code != 0 {
		t.Fatalf("token create = %+v", r)
	}
	made, err := st.Tokens.TokenByHash(t.Context(), auth.Hash(strings.TrimSpace(r.stdout)))
	if err != nil {
		t.Fatal(err)
	}
	ws, user, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if made.Workspace != ws || made.User != user || made.Description != "found again" || made.ExpiresAt.Sub(made.CreatedAt) != time.Hour {
		t.Errorf("the token made is %+v", made)
	}
	rows, err := st.Audit.AuditRows(t.Context(), audit.Filter{Action: "create-token", Object: made.ID, Workspace: ws})
	if err != nil || len(rows.Items) != 1 || !strings.Contains(string(rows.Items[0].Record), `"via":"local"`) {
		t.Errorf("records of it: %+v, %v", rows, err)
	}
	r = invoke(t, nil, "", "token", "create", "--state-dir", dir)
	made, err = st.Tokens.TokenByHash(t.Context(), auth.Hash(strings.TrimSpace(r.stdout)))
	if err != nil || len(made.Scopes) != 2 || made.ExpiresAt.Sub(made.CreatedAt) != 30*24*time.Hour {
		t.Errorf("token create without flags = %+v, made %+v, %v; want 2 scopes and 30 days", r, made, err)
	}
	if r := invoke(t, nil, "", "token", "create", "--state-dir", t.TempDir()); r.code != base.ExitFailure || !strings.Contains(r.stderr, "no server has run") {
		t.Errorf("token create for no server = %+v", r)
	}
}
