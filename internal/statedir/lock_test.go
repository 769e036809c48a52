package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestADirectoryHasOneServer(t *testing.T) {
	state := t.TempDir()
	unlock, err := Lock(t.Context(), state, state)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), state, state); err == nil || !strings.Contains(err.Error(), "another server") {
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
	unlock, err = Lock(t.Context(), state, state)
	if err != nil {
		t.Fatalf("lock after it was given up: %v", err)
	}
	unlock()
}

// A process on another machine is not looked for on this one.
func TestLockOfAnotherMachine(t *testing.T) {
	state := t.TempDir()
	unlock, err := Lock(t.Context(), state, state)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := os.WriteFile(filepath.Join(state, lockFile), []byte("1\n"+state+"\nelsewhere.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), state, state); err == nil || !strings.Contains(err.Error(), "on elsewhere.test") {
		t.Errorf("Lock() = %v, want the other machine named", err)
	}
}

// A killed server's lock can outlive it for a moment: a child that it was forking has all its files
// until the child's own program begins.
func TestLockWaitsForAServerThatHasEnded(t *testing.T) {
	state := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(state, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%d\n%s\n", ended.Process.Pid, state); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.3")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	_ = f.Close() // now only the child has it
	unlock, err := Lock(t.Context(), state, state)
	if err != nil {
		t.Fatalf("Lock() = %v, want it to wait until the child ends", err)
	}
	unlock()
}

func TestARunDirectoryHasOneServer(t *testing.T) {
	state, run := t.TempDir(), t.TempDir()
	unlock, err := Lock(t.Context(), run, state)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := Lock(t.Context(), run, t.TempDir()); err == nil || !strings.Contains(err.Error(), state) || !strings.Contains(err.Error(), "--run-dir") {
		t.Errorf("lock of another server's run directory: %v, want it refused, naming %s", err, state)
	}
}

// TestAwait checks that a server that waits gets the lock when the other gives it up, and that the wait ends with its context.
func TestAwait(t *testing.T) {
	state := t.TempDir()
	unlock, err := Lock(t.Context(), state, state)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Await(ended, state, state); err == nil || err.Error() != "enough" {
		t.Errorf("Await() with an ended context = %v", err)
	}
	type got struct {
		held *Held
		err  error
	}
	waits := make(chan got, 1)
	go func() {
		held, err := Await(t.Context(), state, state)
		waits <- got{held, err}
	}()
	unlock()
	second := <-waits
	if second.err != nil {
		t.Fatalf("Await() = %v", second.err)
	}
	if _, err := Lock(t.Context(), state, state); err == nil {
		t.Error("the lock is not held after Await")
	}
	if err := second.held.Check(); err != nil {
		t.Errorf("Check() = %v", err)
	}
	second.held.Release()
	if err := second.held.Check(); err == nil {
		t.Error("Check() of a lock that was given up succeeded")
	}
	if _, err := Await(t.Context(), filepath.Join(state, "missing"), state); err == nil {
		t.Error("Await() in a directory that is not there succeeded")
	}
}

// TestAwaited checks that the server with a lock finds out whether others wait for it.
func TestAwaited(t *testing.T) {
	state := t.TempDir()
	held, err := Await(t.Context(), state, state)
	if err != nil {
		t.Fatal(err)
	}
	want := func(want bool) {
		t.Helper()
		if got, err := Awaited(state); got != want || err != nil {
			t.Errorf("Awaited() = %v, %v, want %v", got, err, want)
		}
	}
	want(false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() {
			_, err := Await(ctx, state, state)
			ended <- err
		}()
	}
	for {
		if waits, err := Awaited(state); waits || err != nil {
			break
		}
	}
	want(true)
	cancel()
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Await() = %v", err)
		}
	}
	want(false)
	held.Release()
}
