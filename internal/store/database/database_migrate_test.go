package database

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// fixtures is one row for every table, in an order that foreign keys allow.
var fixtures = []string{
	`INSERT INTO users (id, name, created_at) VALUES ('u', 'U', 1)`,
	`INSERT INTO workspaces (id, name, is_default, created_by, created_at, audit_output) VALUES ('w', 'W', 1, 'u', 1, 1)`,
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
	`INSERT INTO snapshot_below (snapshot_id, digest, size_bytes) VALUES ('p', 'sha256:b', 1)`,
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
	`INSERT INTO audit_words (word, seq) VALUES ('exec', 1)`,
	`INSERT INTO audit_chain (id, anchor_seq, anchor_hash, head_seq, head_hash, bytes) VALUES (1, 0, '', 1, 'ff', 1)`,
	`INSERT INTO audit_intents (id, record) VALUES ('i', '{}')`,
	`INSERT OR REPLACE INTO upgrades (name) VALUES ('seal-variables')`,
	`INSERT INTO released (name, released_at) VALUES ('c2', 1)`,
	`INSERT INTO checkpoints_begun (id, sandbox_id, begun_at) VALUES ('c3', 's', 1)`,
	`INSERT INTO images VALUES ('k', 1, 'n', 'latest', 1, '', 'sha256:a', 1, 1, 1, '', 'sha256:b', 1, '', '', '', '{}', 1, 0, 0, '', '', 0, 0, '', '', 'null', 0, 1, 1, '')`,
	`INSERT INTO image_users (image_key, workspace_id, used_at) VALUES ('k', 'w', 1)`,
	`INSERT INTO image_readers (image_key, proof, proven_at) VALUES ('k', 'w/r@1', 1)`,
	`INSERT INTO ssh_keys (id, user_id, workspace_id, name, public_key, fingerprint, created_at) VALUES ('h', 'u', 'w', 'n', 'ssh-ed25519 A', 'SHA256:a', 1)`,
	`INSERT INTO webhooks (id, workspace_id, url, description, types, enabled, secret, created_by, created_at, updated_at)
		VALUES ('wh', 'w', 'https://a.example', '', '', 1, 'sealed:k:AA', 'u', 1, 1)`,
	`INSERT INTO webhook_deliveries (id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data, created_at, retry_until, next_attempt_at)
		VALUES ('msg_1', 'wh', 'w', 1, 's', 'n', 1, 'created', '', '{}', 1, 0, 0)`,
	`INSERT INTO archives (checkpoint_id, sandbox_id, workspace_id, size_bytes, archived_at) VALUES ('c4', 's', 'w', 1, 1)`,
	`INSERT INTO automatic_copies (checkpoint_id, sandbox_id, image_digest, created_at) VALUES ('c5', 's', 'sha256:a', 1)`,
	`INSERT INTO workers (id, name, key_digest, state, address, version, memory_bytes, cores, joined_at, seen_at) VALUES ('worker-A', 'a', 'ff', 'ready', '', '', 1, 1, 1, 1)`,
	`INSERT INTO stored_files (digest, content, size_bytes, workspace_id, stored_by) VALUES ('sha256:a', 'a', 1, 'w', 'i')`,
	`UPDATE installation SET generation = 7`,
	`UPDATE rights_changes SET changes = 7`,
	`DELETE FROM quota_use WHERE workspace_id = ''`, // a trigger has added the other row
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
	m, err := Migrator(db)
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
	m, err := Migrator(server.writer)
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
