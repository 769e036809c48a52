package hostile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// fakeMmdebstrap notes which files it has open and its environment, and fails.
const fakeMmdebstrap = `#!/bin/sh
{ ls -l /proc/$$/fd; env; } > %NOTE%.new
mv %NOTE%.new %NOTE%
exit 1
`

// TestNothingOfTheStarterReachesChildren starts the server with a secret file open
// under many descriptors and a secret in its environment. Neither the processes of
// sandboxes nor the tools that build images may have them.
func TestNothingOfTheStarterReachesChildren(t *testing.T) {
	s := testserver.Start(t)
	s.Stop()
	dir := t.TempDir()
	secret, note := filepath.Join(dir, "the-secret-file"), filepath.Join(dir, "note")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tool := strings.ReplaceAll(fakeMmdebstrap, "%NOTE%", note)
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("MODBOX_TEST_SECRET", "the-secret-variable")
	s.Inherit(slices.Repeat([]*os.File{f}, 100)...) // some numbers are given to files of the box's own
	s.Launch()

	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	pids := s.BoxProcesses()
	if len(pids) == 0 {
		t.Fatal("the sandbox has no process on the host")
	}
	for _, pid := range pids {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		for _, fd := range descriptors(t, proc) {
			if strings.Contains(fd, secret) {
				t.Errorf("process %d of the sandbox has the starter's file open: %s", pid, fd)
			}
		}
		for _, standard := range []string{"0", "1"} {
			if to, err := os.Readlink(filepath.Join(proc, "fd", standard)); err == nil && to != os.DevNull {
				t.Errorf("descriptor %s of process %d is %s, want %s", standard, pid, to, os.DevNull)
			}
		}
		if env, err := os.ReadFile(filepath.Join(proc, "environ")); err == nil && strings.Contains(string(env), "the-secret") {
			t.Errorf("process %d of the sandbox has the starter's environment: %q", pid, env)
		}
	}
	res := s.Bash(sb.ID, "env; ls -l /proc/*/fd", time.Minute)
	if strings.Contains(string(res.Stdout), "the-secret") {
		t.Errorf("the guest sees what the starter has: %s", res.Stdout)
	}

	_, _ = s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "bun:1", WaitUpTo: 5 * time.Minute}) // the tool fails
	saw, err := os.ReadFile(note)
	if err != nil {
		t.Fatalf("the tool that builds images was not started: %v; the server's log:\n%s", err, s.Log())
	}
	if !strings.Contains(string(saw), "PATH=") || strings.Contains(string(saw), "the-secret") {
		t.Errorf("the tool that builds images has this open and in its environment, want PATH and nothing secret:\n%s", saw)
	}
}

// descriptors lists what a process has open, as NUMBER -> TARGET.
func descriptors(t *testing.T, proc string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(proc, "fd", e.Name())); err == nil {
			list = append(list, e.Name()+" -> "+to)
		}
	}
	return list
}
