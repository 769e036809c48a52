package e2e_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// mustRun runs a command of the CLI that must succeed.
func mustRun(t *testing.T, s *testserver.Server, stdin string, args ...string) string {
	t.Helper()
	out, errOut, code := run(t, s, stdin, args...)
	if code != 0 {
		t.Fatalf("modbox %v = %q, %d", args, errOut, code)
	}
	return out
}

// shortDir makes a directory with a path that is short enough for a run directory.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mbx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestBackupAndRestoreOnAnotherMachine takes a server with everything to a new state
// directory while it runs, and finds everything there.
func TestBackupAndRestoreOnAnotherMachine(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "team/private:v1", "one")
	reg.on(basicAuth)
	s := testserver.StartSmall(t)
	mustRun(t, s, registryPassword+"\n", "registry", "add", reg.host, "--username", "ann", "--password-stdin")
	token, err := s.Tokens.Create(t.Context(), "kept", client.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seven := int64(7)
	ws, err := s.Workspaces.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Workspaces.SetQuota(t.Context(), ws[0].ID, client.Quota{Sandboxes: &seven}); err != nil {
		t.Fatal(err)
	}
	first := s.Token
	sb := s.MustCreate(client.CreateOptions{Name: "paused", Image: "modbox/base"})
	s.Bash(sb.ID, `echo file > ~/file; echo saved > ~/snapshotted`, time.Minute)
	job, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Shell: "sleep 100000"}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "cp"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	running := s.MustCreate(client.CreateOptions{Name: "running", Image: "modbox/base"})

	file := filepath.Join(t.TempDir(), "backup.tar.zst")
	mustRun(t, s, "", "backup", file, "--state-dir", s.StateDir)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the backup: %v, %v", info, err)
	}
	mustRun(t, s, "", "restore", "--check", file)
	if _, errOut, code := run(t, s, "", "restore", file, "--force", "--state-dir", s.StateDir); code == 0 || !strings.Contains(errOut, "another server") {
		t.Errorf("restore below a running server = %q, %d, want a refusal", errOut, code)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), running.ID); err != nil {
		t.Fatal(err)
	}
	s.Stop()

	// Another machine.
	s.StateDir, s.RunDir = filepath.Join(t.TempDir(), "state"), shortDir(t)
	mustRun(t, s, "", "restore", file, "--state-dir", s.StateDir)
	if _, errOut, code := run(t, s, "", "restore", file, "--state-dir", s.StateDir); code == 0 || !strings.Contains(errOut, "--force") {
		t.Errorf("restore onto what was restored = %q, %d, want a refusal", errOut, code)
	}
	s.Launch()
	if s.Token != first {
		t.Error("the first token is another one")
	}
	c, err := client.New(s.URL, token.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Sandboxes.Get(t.Context(), "paused"); err != nil || got.ID != sb.ID || got.State != client.Paused {
		t.Errorf("with the token made before: %+v, %v", got, err)
	}
	if got, err := s.Sandboxes.Get(t.Context(), running.ID); err != nil || got.Cause == nil || got.Cause.Code != "host_restart" {
		t.Errorf("what was running: %+v, %v, want it ended by host_restart", got, err)
	}
	if q, err := s.Workspaces.Quota(t.Context(), ws[0].ID); err != nil || q.Set.Sandboxes == nil || *q.Set.Sandboxes != 7 {
		t.Errorf("quota: %+v, %v", q, err)
	}
	if now, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); err != nil || now.MemoryLostReason != "" {
		t.Fatalf("resume: %+v, %v", now, err)
	}
	if res := s.Bash(sb.ID, `cat ~/file`, time.Minute); string(res.Stdout) != "file\n" {
		t.Errorf("in the resumed sandbox: %+v", res)
	}
	if e, err := s.Executions.Get(t.Context(), job.ID, 0); err != nil || e.State != client.ExecutionRunning {
		t.Errorf("the execution in the resumed sandbox: %+v, %v, want it running", e, err)
	}
	child := s.MustCreate(client.CreateOptions{Snapshot: "snap"})
	if res := s.Bash(child.ID, `cat ~/snapshotted`, time.Minute); string(res.Stdout) != "saved\n" {
		t.Errorf("in a sandbox of the snapshot: %+v", res)
	}
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "cp"); err != nil {
		t.Errorf("going back to the checkpoint: %v", err)
	}
	if out, errOut, code := run(t, s, "", "run", ref, "--", "cat", "/srv/version"); out != "one" || code != 0 {
		t.Errorf("run of a private image = %q, %q, %d", out, errOut, code)
	}
}

// TestBackupInABucketHasSavedSandboxes makes automatic backups in a bucket, restores one to a new state directory, and resumes what was paused.
func TestBackupInABucketHasSavedSandboxes(t *testing.T) {
	dir := t.TempDir()
	bucket := "file://" + dir
	// The server makes no backup in a directory without backups, as a file system may not be mounted.
	if err := os.WriteFile(filepath.Join(dir, "store.json"), []byte(`{"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.StartSmall(t, "--backup-every", "1h", "--backup-url", bucket)
	sb := s.MustCreate(client.CreateOptions{Name: "paused", Image: "modbox/base"})
	s.Bash(sb.ID, `echo file > ~/file`, time.Minute)
	job, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Shell: "sleep 100000"}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	mustRun(t, s, "", "backup", "create", "--to", bucket, "--state-dir", s.StateDir)
	if out := mustRun(t, s, "", "backup", "create", "--to", bucket, "--state-dir", s.StateDir, "--json"); !strings.Contains(out, "sent_bytes") {
		t.Errorf("the second backup: %s", out)
	} else {
		t.Logf("the second backup: %s", out)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling another process
		if out := mustRun(t, s, "", "backup", "ls", "--from", bucket); strings.Count(out, "\n") == 4 { // the header, two, and the server's
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the server made no backup: %s; its log:\n%s", out, s.Log())
		}
	}
	mustRun(t, s, "", "backup", "verify", "--from", bucket)
	s.Stop()
	s.StateDir, s.RunDir = filepath.Join(t.TempDir(), "state"), shortDir(t)
	mustRun(t, s, "", "restore", "--from", bucket, "--id", newest(t, s, bucket), "--state-dir", s.StateDir)
	s.Launch()
	if now, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); err != nil || now.MemoryLostReason != "" {
		t.Fatalf("resume: %+v, %v", now, err)
	}
	if res := s.Bash(sb.ID, `cat ~/file`, time.Minute); string(res.Stdout) != "file\n" {
		t.Errorf("in the resumed sandbox: %+v", res)
	}
	if e, err := s.Executions.Get(t.Context(), job.ID, 0); err != nil || e.State != client.ExecutionRunning {
		t.Errorf("the execution in the resumed sandbox: %+v, %v, want it running", e, err)
	}
}

// newest returns the id of the newest backup in a bucket.
func newest(t *testing.T, s *testserver.Server, bucket string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(mustRun(t, s, "", "backup", "ls", "--from", bucket)), "\n")
	id, _, _ := strings.Cut(strings.TrimSpace(lines[len(lines)-1]), " ")
	return id
}

// TestRestoreWithoutCheckpointsSaysSo: what a backup leaves out is an error that says so.
func TestRestoreWithoutCheckpointsSaysSo(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	if _, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.tar.zst")
	mustRun(t, s, "", "backup", file, "--state-dir", s.StateDir, "--without-checkpoints", "--images", "none")
	s.Stop()
	s.StateDir, s.RunDir = t.TempDir(), shortDir(t)
	mustRun(t, s, "", "restore", file, "--state-dir", s.StateDir)
	s.Launch()
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), "no complete checkpoint") {
		t.Errorf("resume of what was not in the backup = %v, want unsupported with the reason", err)
	}
	if _, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: "snap"}); err == nil {
		t.Error("a sandbox was made of a snapshot that was not in the backup")
	} else {
		t.Logf("a sandbox of a snapshot that was not in the backup: %v", err)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// TestDatabaseThatIsDamagedNamesTheBackup starts a server on damaged pages, and again
// after the backup that it names was restored.
func TestDatabaseThatIsDamagedNamesTheBackup(t *testing.T) {
	s := testserver.StartSmall(t, "--backup-every", "1h", "--backup-images", "none")
	var made string
	for deadline := time.Now().Add(time.Minute); made == ""; time.Sleep(20 * time.Millisecond) { // polling another process
		if names, _ := filepath.Glob(filepath.Join(s.StateDir, "backups", "modbox-*.tar.zst")); len(names) > 0 {
			made = names[0]
		} else if time.Now().After(deadline) {
			t.Fatalf("the server made no backup; its log:\n%s", s.Log())
		}
	}
	s.Stop()
	database := filepath.Join(s.StateDir, "modbox.db")
	whole, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	for at := 8192; at < len(whole); at += 4096 { // every page but the schema's first
		copy(whole[at:at+100], bytes.Repeat([]byte{0xa5}, 100))
	}
	if err := os.WriteFile(database, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := run(t, s, "", "server", "--listen", "127.0.0.1:0", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	if code == 0 || !strings.Contains(errOut, "damaged") || !strings.Contains(errOut, "modbox restore --force "+made) {
		t.Errorf("start on a damaged database = %q, %d, want it refused, naming %s", errOut, code, made)
	}
	if now, err := os.ReadFile(database); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the damaged database was changed, or %v", err)
	}
	mustRun(t, s, "", "restore", "--force", made, "--state-dir", s.StateDir)
	s.Launch()
	s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	if _, err := os.Stat(filepath.Join(s.StateDir, ".restore")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the restore worked with: %v", err)
	}
}
