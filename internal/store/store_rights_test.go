package store_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestRightsThatOthersTake takes rights in the database beside the server, and gives some.
func TestRightsThatOthersTake(t *testing.T) {
	interval := time.Millisecond
	if storetest.Postgres() {
		interval = time.Hour // it notifies
	}
	path := filepath.Join(t.TempDir(), "modbox.db")
	s := reopen(t, path)
	ws, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beside := storetest.Raw(t, path)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := beside.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		if err := beside.QueryRowContext(t.Context(), "SELECT changes FROM rights_changes").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		s.WatchRights(ctx, interval, func() { changes <- struct{}{} }, slog.New(slog.DiscardHandler))
	}()
	told := func(when string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: the server is not told", when)
		}
	}
	told("at first")
	for _, step := range []struct {
		what, query string
		args        []any
		taken       int
	}{
		{"a user", "INSERT INTO users (id, name, created_at) VALUES ('u', 'u', 1)", nil, 0},
		{"a member", "INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, 'u', 'admin', 1)", []any{ws}, 0},
		{"a token", "INSERT INTO tokens (id, hash, workspace_id, user_id, description, created_at) VALUES ('t', 'h', $1, 'u', '', 1), ('t2', 'h2', $1, 'u', '', 1)", []any{ws}, 0},
		{"the use of a token", "UPDATE tokens SET last_used_at = 1", nil, 0},
		{"a token that is revoked", "UPDATE tokens SET revoked_at = 2 WHERE id = 't'", nil, 1},
		{"a token that is deleted", "DELETE FROM tokens WHERE id = 't'", nil, 1},
		{"a session", "INSERT INTO sessions (id, user_id, access_hash, access_expires_at, refresh_hash, refresh_expires_at, method, address, created_at, refreshed_at) VALUES ('s', 'u', 'h', 1, 'h', 1, 'x', 'x', 1, 1)", nil, 0},
		{"a session that ends", "DELETE FROM sessions", nil, 1},
		{"no session that ends", "DELETE FROM sessions", nil, 0},
		{"another role", "UPDATE members SET role = 'viewer' WHERE user_id = 'u'", nil, 1},
		{"a key", "INSERT INTO ssh_keys (id, user_id, name, public_key, fingerprint, created_at) VALUES ('k', 'u', 'k', 'k', 'k', 1)", nil, 0},
		{"a key that expires", "UPDATE ssh_keys SET expires_at = 1", nil, 1},
		{"a key that is deleted", "DELETE FROM ssh_keys", nil, 1},
		{"a user who is disabled", "UPDATE users SET disabled_at = 1 WHERE id = 'u'", nil, 1},
		{"a member who leaves", "DELETE FROM members WHERE user_id = 'u'", nil, 1},
		{"the other token", "DELETE FROM tokens", nil, 1},
		{"a user who is deleted", "DELETE FROM users WHERE id = 'u'", nil, 1},
		{"another name", "UPDATE users SET name = 'x' WHERE id = $1", []any{user}, 0},
	} {
		before := count()
		exec(step.query, step.args...)
		if taken := count() - before; taken != step.taken {
			t.Errorf("%s counts as %d changes, want %d", step.what, taken, step.taken)
		}
		if step.taken > 0 {
			told(step.what)
		}
	}
	cancel()
	<-ended
	if n := len(changes); n > 0 {
		t.Errorf("the server gets %d more reports of a change, want none", n)
	}
}

// TestRightsAfterLostConnections ends the connection that gets notifications, and the database.
func TestRightsAfterLostConnections(t *testing.T) {
	needPostgres(t)
	cluster := storetest.StartCluster(t)
	s, err := store.OpenAt(t.Context(), on(time.Minute, cluster))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		s.WatchRights(ctx, time.Hour, func() { changes <- struct{}{} }, slog.New(slog.DiscardHandler))
	}()
	db := direct(t, cluster)
	for _, lose := range []func(){
		func() {},
		func() {
			if _, err := db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			cluster.Stop("immediate")
			cluster.Start()
		},
	} {
		<-changes
		lose()
		for { // the connection of this test is lost with the database
			if _, err := db.ExecContext(t.Context(), "UPDATE rights_changes SET changes = changes + 1"); err == nil { // without a notification
				break
			} else if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"); err != nil {
			t.Fatal(err)
		}
	}
	<-changes
	cancel()
	<-ended
}
