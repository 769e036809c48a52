package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store/database"
)

// openKeys returns the keys beside a database.
func openKeys(t *testing.T, path string) *secret.Keys {
	t.Helper()
	k, err := secret.Open(filepath.Join(filepath.Dir(path), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// openSealed returns the store of a database with the keys beside it.
func openSealed(t *testing.T, path string) *Store {
	t.Helper()
	return openWith(t, path, openKeys(t, path))
}

// openWith returns the store of a database with other keys.
func openWith(t *testing.T, path string, k Keys) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, WithKeys(k))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// wantNowhere looks for a text in a database, its log and what else is beside it.
func wantNowhere(t *testing.T, path, text string) {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of the database: %q, %v", files, err)
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err != nil || bytes.Contains(data, []byte(text)) {
			t.Errorf("%s has %q in clear (%v)", filepath.Base(name), text, err)
		}
	}
}

// with returns a creation of a sandbox with variables.
func with(ws sandbox.WorkspaceID, name string, env map[string]string) sandbox.Creation {
	now := time.Now().UTC()
	return sandbox.Creation{
		Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Workspace: ws, Name: name, HostLabel: sandbox.HostLabel(name), State: sandbox.Provisioning,
			Image: "modbox/base:latest", Env: env, CreatedBy: "owner", CreatedAt: now, UpdatedAt: now,
		},
		RequestHash: "hash-of-" + name, Event: sandbox.Event{Time: now, Type: sandbox.EventCreated},
	}
}

func TestVariablesAreEncrypted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	s := openSealed(t, path)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := with(ws, "a", map[string]string{"KEY": "plain-create"})
	if _, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil || rec.By != sandbox.MatchName || rec.RequestHash != c.RequestHash {
		t.Errorf("the same again: by %q with hash %q, %v", rec.By, rec.RequestHash, err)
	}
	env := map[string]string{"KEY": "plain-set"}
	if err := s.Sandboxes.SetEnv(t.Context(), c.Sandbox.ID, env); err != nil {
		t.Fatal(err)
	}
	sn := sandbox.Snapshot{ID: "p", Workspace: ws, Name: "n", Env: map[string]string{"KEY": "plain-snapshot"}, CreatedAt: time.Now()}
	if err := s.Snapshots.BeginSnapshot(t.Context(), sn, 10, 1<<30, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first key is gone after that
		if n, err := openKeys(t, path).Rotate(t.Context(), s.Secrets); err != nil || n != 3 {
			t.Fatalf("Rotate = %d, %v, want 3 secrets", n, err)
		}
	}
	s = openSealed(t, path)
	if sb, err := s.Sandboxes.SandboxByID(t.Context(), c.Sandbox.ID); err != nil || cmp.Diff(env, sb.Env) != "" {
		t.Errorf("variables after a restart and changes of the key: %v, %v", sb.Env, err)
	}
	if got, err := s.Snapshots.FinishSnapshot(t.Context(), sn.ID, sandbox.SnapshotResult{}, 1<<30, quota.Admission{}, sandbox.Event{}); err != nil || cmp.Diff(sn.Env, got.Env) != "" {
		t.Errorf("variables of the snapshot: %v, %v", got.Env, err)
	}
	for _, text := range []string{"plain-create", "plain-set", "plain-snapshot", c.RequestHash} {
		wantNowhere(t, path, text)
	}
	s = openWith(t, path, openKeys(t, filepath.Join(t.TempDir(), "other")))
	if _, err := s.Sandboxes.SandboxByID(t.Context(), c.Sandbox.ID); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("variables with another key: %v, want code %s", err, sandbox.Unavailable)
	}
	// Lists decrypt none.
	if p, err := s.Sandboxes.ListSandboxes(t.Context(), ws, sandbox.Filter{}); err != nil || len(p.Items) != 1 || p.Items[0].Env != nil {
		t.Errorf("list of sandboxes = %+v, %v; want the sandbox without its variables", p.Items, err)
	}
	if p, err := s.Snapshots.Snapshots(t.Context(), ws, sandbox.SnapshotFilter{}); err != nil || len(p.Snapshots) != 1 || p.Snapshots[0].Env != nil {
		t.Errorf("list of snapshots = %+v, %v; want the snapshot without its variables", p.Snapshots, err)
	}
}

// TestVariablesEndWithTheSandbox looks at the row itself.
func TestVariablesEndWithTheSandbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	s := openSealed(t, path)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []sandbox.State{sandbox.Destroyed, sandbox.Failed} {
		c := with(ws, "ends-"+string(last), map[string]string{"KEY": "v"})
		if _, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sandboxes.Transition(t.Context(), c.Sandbox.ID, sandbox.Provisioning, sandbox.Destroying, sandbox.Change{}, sandbox.Event{Time: time.Now()}); err != nil {
			t.Fatal(err)
		}
		sb, err := s.Sandboxes.Transition(t.Context(), c.Sandbox.ID, sandbox.Destroying, last, sandbox.Change{}, sandbox.Event{Time: time.Now()})
		if err != nil || sb.Env != nil {
			t.Errorf("%s: variables %v, %v", last, sb.Env, err)
		}
		var env string
		if err := s.Reader().QueryRowContext(t.Context(), "SELECT env FROM sandboxes WHERE id = $1", c.Sandbox.ID).Scan(&env); err != nil || env != "{}" {
			t.Errorf("%s: the row has %q, %v", last, env, err)
		}
	}
}

// failing are keys that encrypt so often.
type failing struct {
	Keys
	left int
}

func (f *failing) Seal(plain, object string) (secret.Sealed, error) {
	if f.left--; f.left < 0 {
		return secret.Sealed{}, errors.New("interrupted")
	}
	return f.Keys.Seal(plain, object)
}

// TestVariablesOfBeforeAreEncrypted has a database of before the migration, with rows that
// were changed and deleted, and an upgrade that is interrupted.
func TestVariablesOfBeforeAreEncrypted(t *testing.T) {
	const rows = sealBatch + 10
	path := filepath.Join(t.TempDir(), "modbox.db")
	writeOld(t, path, rows)
	s := openWith(t, path, &failing{Keys: openKeys(t, path), left: sealBatch + 3})
	if err := s.Secrets.SealVariables(t.Context()); err == nil {
		t.Fatal("an upgrade that was interrupted succeeded")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSealed(t, path)
	check := func() {
		t.Helper()
		for i, want := range map[int]map[string]string{1: {"KEY": "plain-env"}, rows - 1: {"KEY": "plain-env"}} {
			if sb, err := s.Sandboxes.SandboxByID(t.Context(), sandbox.ID(fmt.Sprintf("s%04d", i))); err != nil || cmp.Diff(want, sb.Env) != "" {
				t.Errorf("variables of sandbox %d: %v, %v", i, sb.Env, err)
			}
		}
		if sb, err := s.Sandboxes.SandboxByID(t.Context(), "ended"); err != nil || sb.Env != nil {
			t.Errorf("variables of one that has ended: %v, %v", sb.Env, err)
		}
	}
	check()
	for range 2 {
		if err := s.Secrets.SealVariables(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check()
	wantNowhere(t, path, "plain-")
}

// writeOld makes a database of before variables were encrypted.
func writeOld(t *testing.T, path string, rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	m, err := database.Migrator(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.UpTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	do := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(context.Background(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range older {
		do(row)
	}
	do("BEGIN")
	for i := range rows + 200 {
		id, state := fmt.Sprintf("s%04d", i), "running"
		if i == 0 {
			id, state = "ended", "destroyed"
		}
		do(`INSERT INTO sandboxes (id, workspace_id, name, host_label, state, image, env, labels, memory_bytes, cpu_milli, disk_bytes,
			created_by, created_at, updated_at, request_hash) VALUES ($1, 'w', $1, $1, $2, 'i', '{"KEY":"plain-env"}', '{}', 1, 1, 1, 'u', 1, 1, 'plain-hash')`, id, state)
	}
	do("COMMIT")
	do("DELETE FROM sandboxes WHERE id >= $1", fmt.Sprintf("s%04d", rows))
	do(`INSERT INTO snapshots (id, workspace_id, state, name, tag, description, message, metadata, parent_id, sandbox_id, image, env, content_hash, created_by, created_at)
		VALUES ('p', 'w', 'ready', 'n', 'latest', '', '', '{}', '', 's', 'i', '{"KEY":"plain-env"}', '', 'u', 1)`)
}
