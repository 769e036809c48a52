package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/operator"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/statedir"
)

func TestFirstTokenIsRotatedAndRemoved(t *testing.T) {
	dir, st := stateDir(t)
	a, err := auth.New(auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	path := filepath.Join(dir, statedir.TokenFile)
	if _, err := statedir.WriteSecret(dir, statedir.TokenFile, func() (string, bool, error) { return a.Bootstrap(t.Context(), st.Workspaces) }); err != nil {
		t.Fatal(err)
	}
	read := func() (string, account.Token) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		secret := strings.TrimSpace(string(text))
		token, err := st.Tokens.TokenByHash(t.Context(), auth.Hash(secret))
		if err != nil {
			t.Fatal(err)
		}
		return secret, token
	}
	revoked := func(secret string) {
		t.Helper()
		if token, err := st.Tokens.TokenByHash(t.Context(), auth.Hash(secret)); err != nil || token.RevokedAt.IsZero() {
			t.Errorf("the token before: %+v, %v; want it revoked", token, err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if r := invoke(t, nil, "", append(append([]string{"token"}, args...), "--state-dir", dir)...); r.code != 0 || r.stdout != "" {
			t.Fatalf("modbox token %v = %+v", args, r)
		}
	}
	first, before := read()
	run("rotate-first")
	second, after := read()
	revoked(first)
	if second == first || !after.RevokedAt.IsZero() || !after.ExpiresAt.IsZero() || after.User != before.User || after.Workspace != before.Workspace || len(after.Scopes) > 0 {
		t.Errorf("the new token is %+v, the old one was %+v", after, before)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", info, err)
	}
	cfg := config.Config{StateDir: dir}
	if d, err := operator.DescribeFirstToken(t.Context(), cfg); err != nil || d == nil || !d.Made.Equal(after.CreatedAt) || d.Administrators != 0 {
		t.Errorf("doctor is told %+v, %v", d, err)
	}
	u := account.User{ID: "ada", Name: "ada", Administrator: true, CreatedAt: time.Now()}
	if err := st.Users.CreateUser(t.Context(), u, account.Workspace{ID: "home", Name: "ada", Slug: "ada", CreatedBy: "ada", CreatedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if d, err := operator.DescribeFirstToken(t.Context(), cfg); err != nil || d == nil || d.Administrators != 1 {
		t.Errorf("with another administrator doctor is told %+v, %v", d, err)
	}
	run("rotate-first", "--expires-in", "1h")
	third, after := read()
	revoked(second)
	if after.ExpiresAt.Sub(after.CreatedAt) != time.Hour {
		t.Errorf("the new token is %+v, want it to end after an hour", after)
	}
	run("remove-first")
	revoked(third)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
	run("remove-first") // again
	if d, err := operator.DescribeFirstToken(t.Context(), cfg); err != nil || d != nil {
		t.Errorf("without a token doctor is told %+v, %v", d, err)
	}
	run("rotate-first")
	if _, after := read(); !after.RevokedAt.IsZero() {
		t.Errorf("the token made after the removal is %+v", after)
	}
	for _, action := range []string{"create-token", "revoke-token"} {
		rows, err := st.Audit.AuditRows(t.Context(), audit.Filter{Action: action, Workspace: before.Workspace})
		if err != nil || len(rows.Items) != 3 || !strings.Contains(string(rows.Items[0].Record), `"via":"local"`) {
			t.Errorf("records of %s: %+v, %v; want 3", action, rows, err)
		}
	}
	if r := invoke(t, nil, "", "token", "rotate-first", "--state-dir", t.TempDir()); r.code != base.ExitFailure || !strings.Contains(r.stderr, "no server has run") {
		t.Errorf("rotate-first for no server = %+v", r)
	}
}

func TestTokenCreateWarnsOfBroadTokens(t *testing.T) {
	dir, _ := stateDir(t)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"neither": {[]string{"--scope", "all", "--expires-in", "0"}, []string{"--expires-in", "--scope"}},
		"end":     {[]string{"--expires-in", "1h", "--scope", "all"}, []string{"--scope"}},
		"scope":   {[]string{"--scope", "sandboxes:write", "--expires-in", "0", "--json"}, []string{"--expires-in"}},
		"both":    {[]string{"--scope", "sandboxes:write", "--expires-in", "1h"}, nil},
		"default": {nil, nil},
	} {
		r := invoke(t, nil, "", append([]string{"token", "create", "--state-dir", dir}, tc.args...)...)
		if r.code != 0 || strings.Contains(r.stdout, "Warning") || (r.stderr == "") != (tc.want == nil) {
			t.Errorf("%s: %+v", name, r)
		}
		for _, flag := range []string{"--expires-in", "--scope"} {
			want := false
			for _, w := range tc.want {
				want = want || w == flag
			}
			if strings.Contains(r.stderr, flag) != want {
				t.Errorf("%s: the warning is %q, want %v", name, r.stderr, tc.want)
			}
		}
	}
}
