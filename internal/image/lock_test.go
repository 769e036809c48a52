package image

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// A lock whose file goes with it still keeps everybody else out: those who waited with
// the file open, and those who make a new one.
func TestLockBriefly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.lock")
	var inside atomic.Int32
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 30 {
				unlock, err := lockBriefly(t.Context(), name, nil)
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
		t.Errorf("the file is left: %v", err)
	}
}
