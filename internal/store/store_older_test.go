package store

import (
	"database/sql"
	"fmt"
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

// TestBasesOfOlderSnapshots migrates snapshots from before a table had what lies below them, and back.
func TestBasesOfOlderSnapshots(t *testing.T) {
	const before = 60
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
	rows := older
	for _, sn := range []struct {
		id, state, base string
		size, layer     int
	}{{"first", "deleted", "image", 100, 1}, {"second", "deleted", "first", 10, 1}, {"third", "ready", "second", 1, 1}, {"copy", "ready", "second", 1000, 0}} {
		rows = append(rows, fmt.Sprintf(`INSERT INTO snapshots (id, workspace_id, state, name, tag, description, message, metadata, parent_id, sandbox_id, image,
			base_digest, digest, size_bytes, is_layer, env, content_hash, created_by, created_at)
			VALUES ('%[1]s', 'w', '%[2]s', 'n', '', '', '', '{}', '', '', 'i', '%[3]s', '%[1]s', %[4]d, %[5]d, '{}', '', 'u', 1)`, sn.id, sn.state, sn.base, sn.size, sn.layer))
	}
	for _, row := range rows {
		if _, err := db.ExecContext(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(t.Context(), path) // migrates
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if use, err := s.Quotas.QuotaUse(t.Context(), "w"); err != nil || use.Disk.Snapshots != 1111 {
		t.Errorf("snapshots take %d, %v, want 1111 as before", use.Disk.Snapshots, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.DownTo(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	// "first" lies over an image that counts for nobody, so it is the same with and without the mark.
	layers, err := database.Column[string](t.Context(), db, "SELECT id FROM snapshots WHERE is_layer = 1 ORDER BY id")
	if want := []string{"second", "third"}; err != nil || !slices.Equal(layers, want) {
		t.Errorf("layers after going back: %q, %v, want %q", layers, err, want)
	}
}
