package statedir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

var errEnough = errors.New("enough")

// ended returns a context that has ended: a wait with it tries once.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	return ctx
}

func awaitPart(t *testing.T, dir string, parts []sandbox.Ranges, want int) *Held {
	t.Helper()
	held, part, err := AwaitPart(ended(t), dir, dir, parts)
	if err != nil || part != want {
		t.Fatalf("AwaitPart() = part %d, %v, want %d", part, err, want)
	}
	t.Cleanup(held.Release)
	return held
}

func none(t *testing.T, dir string, parts []sandbox.Ranges) {
	t.Helper()
	if _, part, err := AwaitPart(ended(t), dir, dir, parts); !errors.Is(err, errEnough) {
		t.Errorf("AwaitPart() = part %d, %v, want none", part, err)
	}
}

// TestPartsHaveOneServer checks that servers get different parts, also if they divide the sandboxes in different ways, and the first that is given up.
func TestPartsHaveOneServer(t *testing.T) {
	dir, halves, quarters := t.TempDir(), sandbox.Parts(2), sandbox.Parts(4)
	first := awaitPart(t, dir, halves, 0)
	second := awaitPart(t, dir, halves, 1)
	none(t, dir, halves)
	none(t, dir, quarters)
	for _, h := range []*Held{first, second} {
		if err := h.Check(); err != nil {
			t.Error(err)
		}
	}
	first.Release()
	if err := first.Check(); err == nil {
		t.Error("Check() of a part that was given up succeeded")
	}
	awaitPart(t, dir, quarters, 0)
	none(t, dir, halves)
	third := awaitPart(t, dir, quarters, 1)
	none(t, dir, quarters)
	second.Release()
	awaitPart(t, dir, halves, 1)
	none(t, dir, quarters)
	third.Release()
	awaitPart(t, dir, quarters, 1)
}

// TestPartsAndAll checks that a server that works on all sandboxes and servers that work on parts keep each other out.
func TestPartsAndAll(t *testing.T) {
	dir, halves := t.TempDir(), sandbox.Parts(2)
	unlock, err := Lock(t.Context(), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	none(t, dir, halves)
	unlock()
	first, second := awaitPart(t, dir, halves, 0), awaitPart(t, dir, halves, 1)
	refused := func() {
		t.Helper()
		if _, err := Lock(t.Context(), dir, dir); err == nil || !strings.Contains(err.Error(), "works on a part of the sandboxes") || !strings.Contains(err.Error(), string(holderText()[:8])) {
			t.Errorf("Lock() = %v, want it refused with the name of a holder", err)
		}
		if _, err := Await(ended(t), dir, dir); !errors.Is(err, errEnough) {
			t.Errorf("Await() = %v", err)
		}
	}
	refused()
	first.Release()
	refused()
	second.Release()
	held, err := Await(ended(t), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	held.Release()
}

// TestAddressOfAPart checks that the address counts while the server of the first part runs, and not with the others alone.
func TestAddressOfAPart(t *testing.T) {
	dir, halves := t.TempDir(), sandbox.Parts(2)
	if err := os.WriteFile(filepath.Join(dir, AddressFile), []byte("127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := awaitPart(t, dir, halves[1:], 0)
	if got := RunningAddress(dir); got != "" {
		t.Errorf("RunningAddress() = %q without the server of the first part", got)
	}
	awaitPart(t, dir, halves, 0)
	if got := RunningAddress(dir); got != "127.0.0.1:1" {
		t.Errorf("RunningAddress() = %q", got)
	}
	second.Release()
	if got := RunningAddress(dir); got != "127.0.0.1:1" {
		t.Errorf("RunningAddress() = %q after another server has ended", got)
	}
}

// TestPartAwaited checks that servers with parts find out that a standby waits.
func TestPartAwaited(t *testing.T) {
	dir, all := t.TempDir(), sandbox.Parts(2)
	first := awaitPart(t, dir, all, 0)
	awaitPart(t, dir, all, 1)
	if waits, err := Awaited(dir); waits || err != nil {
		t.Errorf("Awaited() = %v, %v", waits, err)
	}
	got := make(chan error, 1)
	go func() {
		held, part, err := AwaitPart(t.Context(), dir, dir, all)
		if err == nil {
			defer held.Release()
			if part != 0 {
				err = errors.New("it has the other part")
			}
		}
		got <- err
	}()
	for {
		if waits, err := Awaited(dir); waits || err != nil {
			break
		}
	}
	first.Release()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestAlone(t *testing.T) {
	dir := t.TempDir()
	var calls sync.WaitGroup
	var under, done atomic.Int64
	for range 4 {
		calls.Go(func() {
			err := Alone(t.Context(), dir, func() error {
				if n := under.Add(1); n != 1 {
					t.Errorf("%d calls at once", n)
				}
				runtime.Gosched()
				under.Add(-1)
				done.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := done.Load(); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
	err := Alone(t.Context(), dir, func() error {
		if err := Alone(ended(t), dir, func() error { return nil }); !errors.Is(err, errEnough) {
			t.Errorf("Alone() beside another call = %v", err)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("Alone() = %v, want the error of the call", err)
	}
}
