package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// tiny opens a store on a file system of a few megabytes, which a file fills.
func tiny(t *testing.T) (s *Store, full string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system, which takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	s, err := Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, filepath.Join(dir, "filler")
}

// fill takes all space of the file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSandboxIsRecordedOnceHoweverOftenItsRowIsWritten(t *testing.T) {
	s, full := tiny(t)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, full)
	released := 0
	s.OnFull(func() bool {
		released++
		return released == 1 && os.Truncate(full, 0) == nil
	})
	for i := range 20 { // more than the log has at once
		c := with(ws, fmt.Sprint("a", i), nil)
		c.Event.Message = strings.Repeat("x", 1<<20)
		c.Sandbox.Handle = []byte("of a warm box")
		rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{})
		if err != nil || rec.By != sandbox.MatchNone || rec.Sandbox.ID != c.Sandbox.ID || string(rec.Sandbox.Handle) != "of a warm box" {
			t.Fatalf("recorded %s with handle %q, %v, want the new sandbox %s", rec.Sandbox.ID, rec.Sandbox.Handle, err, c.Sandbox.ID)
		}
		events, err := s.Sandboxes.Events(t.Context(), rec.Sandbox.ID, sandbox.EventFilter{Limit: 10})
		if err != nil || len(events.Items) != 1 {
			t.Fatalf("events of sandbox %s: %v, %v, want one", rec.Sandbox.ID, events, err)
		}
	}
	if released != 1 {
		t.Errorf("space was made %d times, want once", released)
	}
}
