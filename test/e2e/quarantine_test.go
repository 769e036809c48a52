package e2e_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to change the database of a server that has stopped

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// database changes the database of a server that has stopped.
func database(t *testing.T, s *testserver.Server, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(s.StateDir, "modbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// TestSavedMemoryOutlivesItsRow pauses a sandbox and loses its row: the next start keeps
// the memory in quarantine, and a start with the row again brings it back.
func TestSavedMemoryOutlivesItsRow(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	s.Bash(sb.ID, `echo kept > ~/file; (sleep 1000 >/dev/null 2>&1 &)`, time.Minute)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	right, err := os.ReadFile(filepath.Join(s.StateDir, "modbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	// A database that never had the row has no record that it gave up its saved state.
	database(t, s, "DELETE FROM sandboxes WHERE id = '"+sb.ID+"'", "DELETE FROM released")
	s.Launch()
	list := func() (ids []string) {
		t.Helper()
		out, err := exec.Command(testserver.Binary(t), "quarantine", "ls", "--json", "--state-dir", s.StateDir, "--run-dir", s.RunDir).Output()
		var found []struct{ ID, Path string }
		if jsonErr := json.Unmarshal(out, &found); err != nil || jsonErr != nil {
			t.Fatalf("quarantine ls = %s, %v, %v", out, err, jsonErr)
		}
		for _, q := range found {
			if info, err := os.Stat(filepath.Join(q.Path, "pages.img")); err != nil || info.Size() == 0 {
				t.Errorf("memory of %s: %v", q.ID, err)
			}
			ids = append(ids, q.ID)
		}
		return ids
	}
	deadline := time.Now().Add(time.Minute)
	for len(list()) == 0 { // the first sweep comes soon after the start
		if time.Now().After(deadline) {
			t.Fatalf("nothing is in quarantine; log:\n%s", s.Log())
		}
	}
	if ids := list(); len(ids) != 1 || !strings.HasPrefix(ids[0], sb.ID) {
		t.Errorf("in quarantine: %v, want what was saved of %s", ids, sb.ID)
	}
	s.Stop()
	for _, name := range []string{"modbox.db-wal", "modbox.db-shm"} {
		if err := os.Remove(filepath.Join(s.StateDir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.StateDir, "modbox.db"), right, 0o600); err != nil {
		t.Fatal(err)
	}
	s.SetArgs("--accept-database") // it is older than what lies beside it
	s.Launch()
	if ids := list(); len(ids) != 0 {
		t.Errorf("in quarantine after the row came back: %v, want none", ids)
	}
	res := s.Bash(sb.ID, `cat ~/file; pgrep -x sleep >/dev/null && echo running`, time.Minute)
	if got, want := string(res.Stdout), "kept\nrunning\n"; got != want {
		t.Errorf("after all that: %q (%s), want %q", got, res.Stderr, want)
	}
}

// TestVariablesAreEncryptedAndWorkEverywhere has variables of a sandbox work after a
// restart of the server, a resume and in forks, while the database has them in no file in
// clear, and no more when the sandboxes have ended.
func TestVariablesAreEncryptedAndWorkEverywhere(t *testing.T) {
	s := testserver.StartSmall(t)
	const secret = "s3cret-value-of-a-variable"
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Env: map[string]string{"KEY": secret}})
	check := func(when, id string) {
		t.Helper()
		if res := s.Bash(id, `printf %s "$KEY"`, time.Minute); string(res.Stdout) != secret {
			t.Errorf("%s: the variable is %q (%s), want %q", when, res.Stdout, res.Stderr, secret)
		}
		files, err := filepath.Glob(filepath.Join(s.StateDir, "modbox.db*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("files of the database: %v, %v", files, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if strings.Contains(string(data), secret) {
				t.Errorf("%s: the value is in clear in %s", when, filepath.Base(name))
			}
		}
	}
	check("at first", sb.ID)
	s.Stop()
	s.Launch()
	check("after a restart", sb.ID)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Launch()
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	check("after a resume", sb.ID)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryDiscard}); err != nil {
		t.Fatal(err)
	}
	check("after a resume from files", sb.ID)
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 1})
	if err != nil || len(forks) != 1 || forks[0].Sandbox == nil {
		t.Fatalf("fork = %+v, %v", forks, err)
	}
	check("in a fork", forks[0].Sandbox.ID)
	for _, id := range []string{sb.ID, forks[0].Sandbox.ID} {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	s.Stop()
	db, err := sql.Open("sqlite", filepath.Join(s.StateDir, "modbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, left int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), count(*) FILTER (WHERE env <> '{}') FROM sandboxes").Scan(&rows, &left); err != nil || rows != 2 || left != 0 {
		t.Errorf("%d rows of ended sandboxes, %d with variables, %v; want 2 and none", rows, left, err)
	}
}
