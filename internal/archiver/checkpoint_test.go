package archiver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// keep adds a checkpoint of a sandbox; "" for an automatic one.
func (f *fixture) keep(b *box.Box, name string) sandbox.Checkpoint {
	f.t.Helper()
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: b.ID, Name: name, CreatedAt: time.Now()}
	dir := f.saved.Path(b.ID, cp.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "layer"), []byte(cp.ID), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, cp)
	return cp
}

// TestCheckpointThatIsReplacedDuringItsUpload removes the files of an automatic checkpoint while they are sent. The upload ends, and the next checkpoint of the sandbox is sent after it, although there may be
// two uploads at a time.
func TestCheckpointThatIsReplacedDuringItsUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Copies, f.cfg.After = true, 0
		f.pause("a", 1)
		b := f.boxes[0]
		f.copied[b.View().Sandbox.Saved] = 1
		old := f.keep(b, "")
		f.run(func() {
			synctest.Wait()
			if len(f.begun) != 1 {
				t.Fatalf("%d uploads have begun, want 1", len(f.begun))
			}
			f.mu.Lock()
			f.kept = nil
			f.mu.Unlock()
			next := f.keep(b, "")
			if err := f.saved.Remove(b.ID, old.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * tick)
			if len(f.begun) != 1 {
				t.Errorf("%d uploads have begun beside the first, want none", len(f.begun)-1)
			}
			for range 2 {
				f.finish <- struct{}{}
				time.Sleep(tick)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if !slices.Equal(f.order, []sandbox.CheckpointID{old.ID, next.ID}) {
				t.Errorf("copied %v, want %s and %s", f.order, old.ID, next.ID)
			}
		})
	})
}

// TestOrderOfCheckpoints copies named checkpoints before automatic checkpoints, and no checkpoint whose files are lost.
func TestOrderOfCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Copies, f.cfg.After = true, 0
		f.pause("a", 3)
		for _, b := range f.boxes {
			f.copied[b.View().Sandbox.Saved] = 1
		}
		first, second := f.keep(f.boxes[0], ""), f.keep(f.boxes[1], "")
		lost := f.keep(f.boxes[2], "lost")
		if err := f.saved.Remove(lost.Sandbox, lost.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		names := []sandbox.CheckpointID{f.keep(f.boxes[2], "x").ID, f.keep(f.boxes[2], "y").ID}
		f.run(func() {
			for range 4 {
				f.finish <- struct{}{}
				synctest.Wait()
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.order) != 4 || !slices.Contains(names, f.order[0]) || slices.Contains(f.order, lost.ID) || !slices.Contains(f.order, first.ID) || !slices.Contains(f.order, second.ID) {
				t.Errorf("copied %v, want the named checkpoints %v before %s and %s", f.order, names, first.ID, second.ID)
			}
		})
	})
}
