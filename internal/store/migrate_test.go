package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// fixtures is one row for every table, in an order that foreign keys allow.
var fixtures = []string{
	`INSERT INTO users (id, name, created_at) VALUES ('u', 'U', 1)`,
	`INSERT INTO workspaces (id, name, is_default, created_by, created_at) VALUES ('w', 'W', 1, 'u', 1)`,
	`INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ('w', 'u', 'owner', 1)`,
	`INSERT INTO tokens (id, hash, workspace_id, user_id, description, created_at) VALUES ('t', 'ff', 'w', 'u', '', 1)`,
	`INSERT INTO sandboxes (id, workspace_id, name, host_label, state, image, env, labels, memory_bytes, cpu_milli, disk_bytes,
		created_by, created_at, updated_at, request_hash) VALUES ('s', 'w', 'n', 'l', 'running', 'i', '{}', '{}', 1, 1, 1, 'u', 1, 1, 'h')`,
	`INSERT INTO sandbox_labels (sandbox_id, label, value) VALUES ('s', 'a', 'b')`,
	`INSERT INTO events (sandbox_id, time, type, message, data) VALUES ('s', 1, 'created', '', '{}')`,
	`INSERT INTO checkpoints (id, sandbox_id, name, size_bytes, created_by, created_at) VALUES ('c', 's', 'n', 1, 'u', 1)`,
	`INSERT INTO executions (id, sandbox_id, workspace_id, kind, argv, state, stdout, stderr, created_by, created_at)
		VALUES ('e', 's', 'w', 'exec', '[]', 'running', 'o', 'e', 'u', 1)`,
	`INSERT INTO snapshots (id, workspace_id, state, name, tag, description, message, metadata, parent_id, sandbox_id, image, env, content_hash, created_by, created_at)
		VALUES ('p', 'w', 'ready', 'n', 'latest', '', '', '{}', '', 's', 'i', '{}', '', 'u', 1)`,
	`INSERT INTO registries (id, workspace_id, name, server, host, username, email, key_id, password, enabled, created_by, created_at, updated_at)
		VALUES ('r', 'w', 'n', 'h', 'h', 'u', '', 'k', x'00', 1, 'u', 1, 1)`,
	`INSERT INTO catalogue_images (id, workspace_id, name, image, tag, description, enabled, is_default, memory_bytes, readiness_port, ttl,
		registry_id, created_by, created_at, updated_at) VALUES ('i', 'w', 'n', 'r/i', 'latest', '', 1, 1, 1, 0, 0, 'r', 'u', 1, 1)`,
	`INSERT INTO disabled_images (image_id, disabled_by, disabled_at) VALUES ('i', 'u', 1)`,
	`INSERT INTO quotas (workspace_id, name, value) VALUES ('w', 'sandboxes', 3)`,
	`INSERT INTO builds (id, workspace_id, memory_bytes, cpu_milli) VALUES ('b', 'w', 1, 1)`,
	`INSERT INTO idempotency_keys (workspace_id, idempotency_key, sandbox_id, expires_at) VALUES ('w', 'k', 's', 1)`,
	`INSERT INTO sessions (id, user_id, access_hash, access_expires_at, refresh_hash, refresh_expires_at, method, address, created_at, refreshed_at)
		VALUES ('s', 'u', 'aa', 1, 'bb', 1, 'password', '', 1, 1)`,
	`INSERT INTO spent_tokens (hash, session_id) VALUES ('cc', 's')`,
	`INSERT INTO invitations (id, hash, workspace_id, role, email, created_by, created_at, expires_at) VALUES ('i', 'dd', 'w', 'member', 'a@b.example', 'u', 1, 2)`,
	`INSERT INTO identities (provider, subject, user_id, created_at) VALUES ('p', '1', 'u', 1)`,
	`INSERT INTO audit_records (seq, record, hash) VALUES (1, '{"action":"exec"}', 'ff')`,
	`INSERT INTO audit_chain (id, anchor_seq, anchor_hash, head_seq, head_hash, bytes) VALUES (1, 0, '', 1, 'ff', 1)`,
	`INSERT INTO audit_intents (id, record) VALUES ('i', '{}')`,
	`INSERT OR REPLACE INTO upgrades (name) VALUES ('seal-variables')`,
	`INSERT INTO released (name, released_at) VALUES ('c2', 1)`,
	`INSERT INTO checkpoints_begun (id, sandbox_id, begun_at) VALUES ('c3', 's', 1)`,
	`INSERT INTO images VALUES ('k', 1, 'n', 'latest', 1, '', 'sha256:a', 1, 1, 1, '', 'sha256:b', 1, '', '', '', '{}', 1, 0, 0, '', '', 0, 0, '', '', 'null', 0, 1, 1)`,
	`INSERT INTO image_users (image_key, workspace_id, used_at) VALUES ('k', 'w', 1)`,
	`INSERT INTO image_readers (image_key, proof, proven_at) VALUES ('k', 'w/r@1', 1)`,
	`INSERT INTO ssh_keys (id, user_id, workspace_id, name, public_key, fingerprint, created_at) VALUES ('h', 'u', 'w', 'n', 'ssh-ed25519 A', 'SHA256:a', 1)`,
	`UPDATE installation SET generation = 7`,
}

// tables returns the tables of the schema, without the tables of the tools.
func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT name FROM sqlite_master
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMigrationsUpDownUp(t *testing.T) {
	db, err := sql.Open("sqlite", dsn(filepath.Join(t.TempDir(), "m.db"), "_txlock=immediate"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	m, err := migrator(db)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatalf("up, round %d: %v", round, err)
		}
		for _, row := range fixtures {
			if _, err := db.ExecContext(t.Context(), row); err != nil {
				t.Fatalf("%s: %v", row, err)
			}
		}
		names := tables(t, db)
		if len(names) != len(fixtures) {
			t.Errorf("tables %v, want one fixture for each", names)
		}
		for _, name := range names {
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+name).Scan(&n); err != nil || n != 1 {
				t.Errorf("table %s has %d rows, %v, want 1", name, n, err)
			}
		}
		if _, err := m.DownTo(t.Context(), 0); err != nil {
			t.Fatalf("down, round %d: %v", round, err)
		}
		if names := tables(t, db); len(names) != 0 {
			t.Errorf("tables left by down: %v", names)
		}
	}
}

// TestQueriesUseIndexes explains the queries that are made often.
func TestQueriesUseIndexes(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "m.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for query, index := range map[string]string{
		"SELECT id FROM executions WHERE sandbox_id = 's' AND kind = 'job' ORDER BY created_at DESC, id DESC LIMIT 5": "executions_sandbox",
		"SELECT count(*) FROM executions WHERE sandbox_id = 's' AND " + executionLive:                                 "executions_live",
		"SELECT id FROM executions WHERE ended_at > 0 AND ended_at < 9 LIMIT 5":                                       "executions_ended",
		"SELECT id FROM sandboxes WHERE " + isLive:                                                                    "sandboxes_quota",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND name = 'n' AND " + isNamed:                             "sandboxes_live_name",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND state = 'destroying' AND name = 'n' AND " + isLive:     "sandboxes_",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND name = 'n' ORDER BY created_at DESC":                   "sandboxes_name",
		"SELECT id FROM sandboxes WHERE host_label = 'l'":                                                             "autoindex_sandboxes",
		"SELECT id FROM sandboxes WHERE ended_at > 0 AND ended_at < 9 LIMIT 5":                                        "sandboxes_ended",
		"SELECT seq FROM events WHERE sandbox_id = 's' AND seq > 3 ORDER BY seq":                                      "events_sandbox",
		"SELECT message FROM events WHERE workspace_id = 'w' AND seq > 3 AND type IN ('a', 'b') ORDER BY seq LIMIT 5": "events_workspace",
		"SELECT message FROM events WHERE +workspace_id = 'w' AND sandbox_id = 's' AND seq > 3 ORDER BY seq LIMIT 5":  "events_sandbox",
		"SELECT workspace_id, max(seq) FROM events NOT INDEXED WHERE seq > 3 GROUP BY workspace_id":                   "PRIMARY KEY",
		quotaSandboxes: "sandboxes_quota",
		quotaSnapshots: "snapshots_page",
		"SELECT id FROM ssh_keys WHERE fingerprint = 'SHA256:a'":                                                                                      "autoindex_ssh_keys",
		"SELECT id FROM ssh_keys WHERE user_id = 'u' ORDER BY created_at DESC":                                                                        "ssh_keys_user",
		"SELECT id FROM tokens WHERE hash = 'ff'":                                                                                                     "autoindex_tokens",
		"SELECT seq FROM audit_records WHERE workspace_id = 'w' AND seq < 5 ORDER BY seq DESC LIMIT 5":                                                "audit_records_workspace",
		"SELECT seq FROM audit_records WHERE time >= 't' AND time < 'u' ORDER BY seq":                                                                 "audit_records_time",
		"SELECT id FROM sandboxes WHERE workspace_id = 'w' AND (created_at, id) < (5, 'i') AND state IN ('failed') ORDER BY created_at DESC, id DESC": "sandboxes_page",
	} {
		if plan := explain(t.Context(), t, s.reader, strings.ReplaceAll(query, "$1", "'w'")); !strings.Contains(plan, index) {
			t.Errorf("%s\nis answered by %s, want index %s", query, plan, index)
		}
	}
}

func explain(ctx context.Context, t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(plan)
}

func TestOpenExistingLeavesTheSchemaAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	if _, err := OpenExisting(t.Context(), path); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("without a database: %v, want not_found", err)
	}
	server, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	second, err := OpenExisting(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Check(t.Context()), second.Check(t.Context()), second.Close()); err != nil {
		t.Errorf("writes of both: %v", err)
	}
	m, err := migrator(server.writer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenExisting(t.Context(), path); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("a database of another version: %v, want unsupported", err)
	}
}

// TestPortLabelsOfAnOlderDatabase migrates rows from before ports had labels, and back.
func TestPortLabelsOfAnOlderDatabase(t *testing.T) {
	const before = 24
	path := filepath.Join(t.TempDir(), "m.db")
	db, err := sql.Open("sqlite", dsn(path, "_txlock=immediate"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	m, err := migrator(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.UpTo(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	for _, row := range fixtures[:2] { // a user and its workspace
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
		sb, err := s.SandboxByID(t.Context(), id)
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
