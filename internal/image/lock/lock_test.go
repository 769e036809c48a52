package lock_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/image/lock"
)

// TestBriefly: a lock whose file is removed at its end excludes all other callers: callers that
// waited with the file open, and callers that make a new file.
func TestBriefly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.lock")
	var inside atomic.Int32
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 30 {
				unlock, err := lock.Briefly(t.Context(), name, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				for range 50 { // long enough for others to come
					_, _ = os.ReadDir(dir)
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	g.Wait()
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}
