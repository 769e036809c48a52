package worker

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestAStolenToken checks that the token and the id of the worker that has joined are not enough to be it.
func TestAStolenToken(t *testing.T) {
	c := newControl(t)
	d := c.dialer(t, c.token)
	early := c.dialer(t, c.token) // has a certificate with the id before the worker joins
	early.id = d.id
	if err := early.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.once(t.Context(), echoes); err != nil {
		t.Fatalf("connect: %v", err)
	}
	<-c.attached
	if err := c.joined.Record(identity(d.id, d.key.Public())); err != nil {
		t.Fatal(err)
	}
	thief := c.dialer(t, c.token)
	thief.id = d.id
	if err := thief.join(t.Context()); err == nil || !strings.Contains(err.Error(), "this server has the worker") {
		t.Errorf("join with the worker's id and another key: %v", err)
	}
	if err := early.once(t.Context(), echoes); err == nil {
		t.Error("a certificate with the worker's id and another key connects")
	}
	d.cert = nil // as in another process of the worker
	if err := d.once(t.Context(), echoes); err != nil {
		t.Errorf("the worker itself: %v", err)
	}
}

// TestFirstWorkers checks that one worker remains when several join at the same time.
func TestFirstWorkers(t *testing.T) {
	j := NewJoined(filepath.Join(t.TempDir(), "joined"))
	var all sync.WaitGroup
	errs := make(chan error, 16)
	for i := range cap(errs) {
		all.Go(func() { errs <- j.Record(Identity{"worker-A", strings.Repeat("0", i)}) })
	}
	all.Wait()
	close(errs)
	recorded := 0
	for err := range errs {
		if err == nil {
			recorded++
		} else if sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("Record() = %v", err)
		}
	}
	if recorded != 1 {
		t.Errorf("%d workers were recorded, want one", recorded)
	}
}

func TestKey(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenState(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, keyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v", keyFile, info.Mode(), err)
	}
	if again, err := OpenState(dir); err != nil || !again.key.Equal(first.key) {
		t.Errorf("OpenState() again has another key, or %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(dir); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("OpenState() with a damaged key = %v, want an error with the path", err)
	}
}
