package statedir

import (
	"os/exec"
	"strings"
	"testing"
)

func TestADirectoryHasOneServer(t *testing.T) {
	state := t.TempDir()
	unlock, err := Lock(state, state)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(state, state); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("second lock = %v, want it refused with the holder's name", err)
	}
	// A child of the holder, such as a sandbox, must not keep the lock.
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	unlock()
	unlock, err = Lock(state, state)
	if err != nil {
		t.Fatalf("lock after it was given up: %v", err)
	}
	unlock()
}

func TestARunDirectoryHasOneServer(t *testing.T) {
	state, run := t.TempDir(), t.TempDir()
	unlock, err := Lock(run, state)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := Lock(run, t.TempDir()); err == nil || !strings.Contains(err.Error(), state) || !strings.Contains(err.Error(), "--run-dir") {
		t.Errorf("lock of another server's run directory: %v, want it refused, naming %s", err, state)
	}
}
