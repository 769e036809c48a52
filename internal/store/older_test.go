package store

import (
	"database/sql"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// older are a user and its workspace in a database of an older version.
var older = []string{
	`INSERT INTO users (id, name, created_at) VALUES ('u', 'U', 1)`,
	`INSERT INTO workspaces (id, name, is_default, created_by, created_at) VALUES ('w', 'W', 1, 'u', 1)`,
}

// TestPortLabelsOfAnOlderDatabase migrates rows from before ports had labels, and back.
func TestPortLabelsOfAnOlderDatabase(t *testing.T) {
	const before = 24
	path := filepath.Join(t.TempDir(), "m.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	m, err := database.Migrator(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.UpTo(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	for _, row := range older { // a user and its workspace
		if _, err := db.ExecContext(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	ports := map[sandbox.ID]string{"several": "[3000,8080]", "one": "[65535]", "none": "[]"}
	for id, list := range ports {
		if _, err := db.ExecContext(t.Context(), `INSERT INTO sandboxes (id, workspace_id, name, host_label, state, image, env, labels, memory_bytes,
			cpu_milli, disk_bytes, created_by, created_at, updated_at, request_hash, ports)
			VALUES ($1, 'w', $1, $1, 'running', 'i', '{}', '{}', 1, 1, 1, 'u', 1, 1, 'h', $2)`, id, list); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Now().Truncate(time.Second)
	s, err := Open(t.Context(), path) // migrates
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	labels := map[string]bool{}
	for id, numbers := range map[sandbox.ID][]uint16{"several": {3000, 8080}, "one": {65535}, "none": nil} {
		sb, err := s.Sandboxes.SandboxByID(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sb.Network.Ports, numbers) || sb.URLAccess != "" {
			t.Errorf("sandbox %s: ports %v, URL access %q, want %v and none", id, sb.Network.Ports, sb.URLAccess, numbers)
		}
		for i, p := range sb.Published {
			if p.Port != numbers[i] || p.Access != sandbox.PortPublic || !sandbox.IsPortLabel(p.Label) || p.LabeledAt.Before(started) || labels[p.Label] {
				t.Errorf("sandbox %s publishes %+v, want port %d, public, with a new label of its own", id, p, numbers[i])
			}
			labels[p.Label] = true
		}
	}
	if len(labels) != 3 {
		t.Errorf("%d labels, want 3", len(labels))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.DownTo(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	for id, want := range ports {
		var got string
		if err := db.QueryRowContext(t.Context(), "SELECT ports FROM sandboxes WHERE id = $1", id).Scan(&got); err != nil || got != want {
			t.Errorf("ports of %s after going back: %s, %v, want %s", id, got, err, want)
		}
	}
}
