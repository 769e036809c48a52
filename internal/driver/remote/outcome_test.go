package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
)

// TestCheckpointBeyondItsContext checks that a checkpoint counts that is complete when its context ends, also if its
// answer is late or lost.
func TestCheckpointBeyondItsContext(t *testing.T) {
	for name, lost := range map[string]bool{"Late": false, "Lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(remote.SetCancelTimeout(10 * time.Millisecond)) // after the rig has ended
			r := newRig(t)
			d := r.Control()
			id := r.started(t)
			dir := filepath.Join(t.TempDir(), "saved")
			r.relay.block()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- d.Checkpoint(ctx, id, dir, driver.CheckpointOptions{Stop: true, Layer: true}) }()
			eventually(t, "the checkpoint is there", func() error { _, err := os.Stat(dir); return err })
			cancel()
			select {
			case err := <-done:
				t.Fatalf("Checkpoint() = %v before its answer", err)
			case <-time.After(300 * time.Millisecond): // it could return
			}
			if lost {
				r.relay.cut()
			}
			r.relay.pass()
			if err := <-done; err != nil {
				t.Errorf("Checkpoint() = %v", err)
			}
			if err := d.CanRestore(dir); err != nil {
				t.Errorf("CanRestore() = %v", err)
			}
		})
	}
}
