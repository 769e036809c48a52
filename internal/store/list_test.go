package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestListPages(t *testing.T) {
	s, ws := openStore(t)
	at := time.Now().UTC()
	var want []string
	for i := range 7 {
		c := creation(ws, fmt.Sprint("n", i))
		c.Sandbox.CreatedAt = at.Add(time.Duration(i/2) * time.Second) // pairs share a time
		c.Sandbox.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
		create(t, s, c)
		want = append([]string{c.Sandbox.Name}, want...)
	}
	list := func(f sandbox.Filter) (names []string) {
		t.Helper()
		for pages := 0; ; pages++ {
			page, err := s.Sandboxes.ListSandboxes(t.Context(), ws, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, sb := range page.Items {
				names = append(names, sb.Name)
			}
			if page.Next == "" {
				return names
			}
			f.Cursor = page.Next
		}
	}
	for limit := range 8 {
		if d := cmp.Diff(want, list(sandbox.Filter{Limit: limit})); d != "" {
			t.Errorf("pages of %d differ (-want +got):\n%s", limit, d)
		}
	}
	ended, err := s.Sandboxes.SandboxByName(t.Context(), ws, "n4")
	if err != nil {
		t.Fatal(err)
	}
	end(t, s, ended.ID, at)
	for name, tt := range map[string]struct {
		filter sandbox.Filter
		want   []string
	}{
		"Live":       {sandbox.Filter{}, []string{"n6", "n5", "n3", "n2", "n1", "n0"}},
		"Ended":      {sandbox.Filter{States: []sandbox.State{sandbox.Destroyed}}, []string{"n4"}},
		"All":        {sandbox.Filter{States: sandbox.States, Limit: 2}, want},
		"Label":      {sandbox.Filter{Labels: map[string]string{"parity": "0"}}, []string{"n6", "n2", "n0"}},
		"LabelOther": {sandbox.Filter{Labels: map[string]string{"parity": "0", "x": "y"}}, nil},
		"Name":       {sandbox.Filter{Name: "n3"}, []string{"n3"}},
		"NoSuchName": {sandbox.Filter{Name: "n4"}, nil},
	} {
		if d := cmp.Diff(tt.want, list(tt.filter)); d != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, d)
		}
	}
	if page, err := s.Sandboxes.ListSandboxes(t.Context(), sandbox.NewWorkspaceID(), sandbox.Filter{}); err != nil || len(page.Items) != 0 {
		t.Errorf("another workspace sees %d sandboxes, %v", len(page.Items), err)
	}
}

func TestListRefuses(t *testing.T) {
	s, ws := openStore(t)
	for _, tt := range []struct {
		filter sandbox.Filter
		field  string
	}{
		{sandbox.Filter{Limit: -1}, "limit"},
		{sandbox.Filter{Limit: 1001}, "limit"},
		{sandbox.Filter{Cursor: "x"}, "cursor"},
		{sandbox.Filter{Cursor: "!!"}, "cursor"},
		{sandbox.Filter{Cursor: "MS54"}, "cursor"}, // 1.x
		{sandbox.Filter{States: []sandbox.State{"x"}}, "state"},
	} {
		_, err := s.Sandboxes.ListSandboxes(t.Context(), ws, tt.filter)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != tt.field {
			t.Errorf("ListSandboxes(%+v): %v, want invalid %s", tt.filter, err, tt.field)
		}
	}
}

func TestPurge(t *testing.T) {
	s, ws := openStore(t)
	now := time.Now()
	old := create(t, s, creation(ws, "old"))
	end(t, s, old.ID, now.Add(-time.Hour))
	recent := create(t, s, creation(ws, "recent"))
	end(t, s, recent.ID, now)
	keyed := creation(ws, "live")
	keyed.IdempotencyKey, keyed.KeyLifetime = "k", time.Hour
	create(t, s, keyed)

	if n, err := s.Sandboxes.Purge(t.Context(), now, time.Time{}, 10); n != 0 || err != nil {
		t.Errorf("Purge that keeps sandboxes = %d, %v", n, err)
	}
	if n, err := s.Sandboxes.Purge(t.Context(), now, now.Add(-time.Minute), 10); n != 1 || err != nil {
		t.Errorf("Purge = %d, %v, want 1", n, err)
	}
	if _, err := s.Sandboxes.SandboxByID(t.Context(), old.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the old sandbox after Purge: %v, want code not_found", err)
	}
	if events, err := s.Sandboxes.Events(t.Context(), old.ID, sandbox.EventFilter{}); err != nil || len(events.Items) != 0 {
		t.Errorf("it left %d events, %v", len(events.Items), err)
	}
	again := creation(ws, "other")
	again.IdempotencyKey = "k"
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), again, quota.Admission{}); err != nil || rec.By != sandbox.MatchKey {
		t.Errorf("CreateSandbox with a fresh key = by %q, %v, want by key", rec.By, err)
	}
	if _, err := s.Sandboxes.Purge(t.Context(), now.Add(2*time.Hour), time.Time{}, 10); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), again, quota.Admission{}); err != nil || rec.By != sandbox.MatchNone {
		t.Errorf("CreateSandbox with an expired key = by %q, %v, want a new one", rec.By, err)
	}
}

func TestTokens(t *testing.T) {
	s, ws := openStore(t)
	_, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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

func TestEnsureDefaultsIsIdempotent(t *testing.T) {
	s, ws := openStore(t)
	again, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil || again != ws {
		t.Errorf("EnsureDefaults again = %s, %v, want %s", again, err, ws)
	}
	for _, tt := range []struct {
		user sandbox.UserID
		ws   sandbox.WorkspaceID
		want sandbox.Code
	}{{user, ws, ""}, {"stranger", ws, sandbox.NotFound}, {user, sandbox.NewWorkspaceID(), sandbox.NotFound}} {
		got, err := s.Workspaces.Membership(t.Context(), tt.user, tt.ws)
		if sandbox.CodeOf(err) != tt.want || err == nil && (got.Role != account.RoleOwner || !got.Administrator) {
			t.Errorf("Membership(%s, %s) = %+v, %v, want code %q", tt.user, tt.ws, got, err, tt.want)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// TestLibcIsTheOneSQLiteWasMadeFor guards against an update of modernc.org/libc
// alone: the database corrupts memory with any other version than its own.
func TestLibcIsTheOneSQLiteWasMadeFor(t *testing.T) {
	type module struct{ Version, GoMod string }
	look := func(path string) (m module) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", path).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", path, err)
		}
		if err := json.Unmarshal(out, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	mod, err := os.ReadFile(look("modernc.org/sqlite").GoMod)
	if err != nil {
		t.Fatal(err)
	}
	wants := regexp.MustCompile(`(?m)^\s*(?:require\s+)?modernc\.org/libc\s+(\S+)`).FindSubmatch(mod)
	if wants == nil {
		t.Fatal("modernc.org/sqlite's go.mod does not name modernc.org/libc any more")
	}
	if got := look("modernc.org/libc").Version; !strings.EqualFold(got, string(wants[1])) {
		t.Errorf("modernc.org/libc is %s, but modernc.org/sqlite wants exactly %s", got, wants[1])
	}
}
