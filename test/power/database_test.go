package power_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

var small = client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}

// refused starts a server that must not start, and returns its message.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"server", "--listen", "127.0.0.1:0"}, args...)
	cmd := exec.Command(testserver.Binary(t), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		t.Fatalf("a server that must be refused ended with %v:\n%s", err, &out)
	}
	return out.String()
}

// copyDatabase copies the files of the database, of a server that does not run.
func copyDatabase(t *testing.T, from, to string) {
	t.Helper()
	for _, end := range []string{"", "-wal", "-shm"} {
		name := filepath.Join(to, "modbox.db"+end)
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		src, err := os.Open(filepath.Join(from, "modbox.db"+end))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		dst, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(dst, src)
		if err := errors.Join(err, src.Close(), dst.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// marked makes a sandbox with a marker in its files.
func marked(t *testing.T, s *testserver.Server, name string) *client.Sandbox {
	t.Helper()
	sb := s.MustCreate(client.CreateOptions{Name: name, Image: "modbox/base", Resources: small})
	mark(t, s, sb.ID)
	return sb
}

func mark(t *testing.T, s *testserver.Server, id string) {
	t.Helper()
	res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{User: "root", Shell: "echo kept > /marker"})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("write marker: %+v, %v", res, err)
	}
}

// holdsMarker asserts that a sandbox, which may be paused, has its marker.
func holdsMarker(t *testing.T, s *testserver.Server, id string) {
	t.Helper()
	res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"cat", "/marker"}})
	if err != nil || string(res.Stdout) != "kept\n" {
		sb, _ := s.Sandboxes.Get(t.Context(), id)
		t.Errorf("sandbox %s: cat /marker = %+v, %v; sandbox %+v", id, res, err, sb)
	}
}

// TestADatabaseThatDoesNotFitCostsNothing puts an older, an empty, a missing and another
// installation's database in place of the right one.
func TestADatabaseThatDoesNotFitCostsNothing(t *testing.T) {
	s := testserver.StartSmall(t)
	older, right := t.TempDir(), t.TempDir()
	s.Kill() // as a server that is killed, so that the copy has a write-ahead log
	copyDatabase(t, s.StateDir, older)
	s.Launch()
	running, paused := marked(t, s, "running"), marked(t, s, "paused")
	if _, err := s.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	copyDatabase(t, s.StateDir, right)
	own := []string{"--state-dir", s.StateDir, "--run-dir", s.RunDir}
	for name, put := range map[string]func(){
		"older":   func() { copyDatabase(t, older, s.StateDir) },
		"missing": func() { copyDatabase(t, t.TempDir(), s.StateDir) },
		"empty": func() {
			copyDatabase(t, t.TempDir(), s.StateDir)
			if err := os.WriteFile(filepath.Join(s.StateDir, "modbox.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		put()
		for range 2 {
			if out := refused(t, own...); !strings.Contains(out, "--accept-database") {
				t.Errorf("%s database: the server says\n%s\nwant how to decide", name, out)
			}
		}
	}
	copyDatabase(t, right, s.StateDir)
	s.Launch()
	holdsMarker(t, s, running.ID)
	holdsMarker(t, s, paused.ID)
	if sb, err := s.Sandboxes.Get(t.Context(), paused.ID); err != nil || sb.MemoryLostReason != "" {
		t.Errorf("the paused sandbox: %+v, %v, want it with its memory", sb, err)
	}
}

// TestASecondServerWithTheSameRunDirectory starts one with another state directory while
// the first runs, and after it was killed.
func TestASecondServerWithTheSameRunDirectory(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := marked(t, s, "first")
	second := []string{"--state-dir", t.TempDir(), "--run-dir", s.RunDir}
	for _, running := range []bool{true, false} {
		if !running {
			s.Kill()
		}
		if out := refused(t, second...); !strings.Contains(out, s.StateDir) || !strings.Contains(out, "--run-dir") {
			t.Errorf("second server while the first runs (%v) says\n%s\nwant the first's state directory", running, out)
		}
	}
	s.Launch()
	holdsMarker(t, s, sb.ID)
}
