package remote_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

// taker is a driver that calls something when the control plane has, or does not have, a checkpoint.
type taker struct {
	*fake.Driver
	taken func(err error) error
}

func (d taker) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	if take := opts.Take; take != nil {
		opts.Take = func(ctx context.Context, dir string) error { return d.taken(take(ctx, dir)) }
	}
	return d.Driver.Checkpoint(ctx, id, dir, opts)
}

// fill writes a large file into a box.
func (r *rig) fill(t *testing.T, id sandbox.ID, size int64) {
	t.Helper()
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return r.Control().Dial(ctx, id, driver.AgentPort) })
	defer agent.Close()
	if _, err := agent.WriteFile(within(t), "/large", io.LimitReader(rand.NewChaCha8([32]byte{1}), size), agentapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantNothingUnderWay checks that the worker has no checkpoint.
func (r *rig) wantNothingUnderWay(t *testing.T) {
	t.Helper()
	eventually(t, "the worker has no checkpoint", func() error {
		entries, err := os.ReadDir(filepath.Join(r.Dir(), "under-way"))
		if err == nil && len(entries) > 0 {
			err = errors.New("it has " + entries[0].Name())
		}
		return err
	})
}

// wantOnly checks which names a directory has.
func wantOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("in %s: %q, %v, want %q", dir, names, err, want)
	}
}

// TestCheckpointWithoutAnswer checks that a checkpoint counts that the control plane has, also if the worker does not hear of it or ends
// before it stops the box; then the box is destroyed.
func TestCheckpointWithoutAnswer(t *testing.T) {
	var r *rig
	r = newRigOf(t, func(d *fake.Driver) driver.Driver {
		return taker{d, func(err error) error {
			r.relay.cut()
			return errors.Join(err, errors.New("the connection was cut"))
		}}
	})
	d := r.Control()
	id := r.started(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	if err := d.Checkpoint(within(t), id, dir, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Errorf("Checkpoint() = %v", err)
	}
	if err := d.CanRestore(dir); err != nil {
		t.Errorf("CanRestore() = %v", err)
	}
	wantOnly(t, parent, "saved")
	if ids, err := d.List(within(t)); err != nil || slices.Contains(ids, id) {
		t.Errorf("List() = %v, %v, with the box that was to stop", ids, err)
	}
	r.wantNothingUnderWay(t)
}

// TestCheckpointThatIsNotKept checks that a box goes on whose checkpoint the control plane does not have: the connection breaks, its
// context ends, or its disk is full. Nothing remains.
func TestCheckpointThatIsNotKept(t *testing.T) {
	full := sandbox.Errorf(sandbox.DiskFull, "the disk is full")
	for name, c := range map[string]struct {
		take func(r *rig, cancel func(), ctx context.Context) error
		want sandbox.Code
	}{
		"DiskFull": {func(*rig, func(), context.Context) error { return full }, sandbox.DiskFull},
		"Canceled": {func(_ *rig, cancel func(), ctx context.Context) error { cancel(); return nil }, sandbox.Internal},
		"Cut": {func(r *rig, _ func(), ctx context.Context) error {
			r.relay.cut()
			return sandbox.Errorf(sandbox.Unavailable, "the server ends")
		}, sandbox.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			wentOn := make(chan error, 1)
			r := newRigOf(t, func(d *fake.Driver) driver.Driver {
				return taker{d, func(err error) error { wentOn <- err; return err }}
			})
			d := r.Control()
			id := r.started(t)
			parent := t.TempDir()
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			err := d.Checkpoint(ctx, id, filepath.Join(parent, "saved"), driver.CheckpointOptions{
				Stop: true, Take: func(ctx context.Context, _ string) error { return c.take(r, cancel, ctx) },
			})
			wantCode(t, "Checkpoint()", err, c.want)
			if err := <-wentOn; err == nil {
				t.Error("the worker takes the checkpoint for kept")
			}
			wantOnly(t, parent)
			r.wantNothingUnderWay(t)
			r.wantAnswer(t, id)
		})
	}
}

// TestCutWhileSaving checks that a box goes on when the connection breaks while its checkpoint is sent, or before, and that the next
// attempt succeeds, also with another process of the worker.
func TestCutWhileSaving(t *testing.T) {
	for name, restart := range map[string]bool{"Connection": false, "Worker": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			id := r.started(t)
			r.fill(t, id, 32<<20) // more than the windows and buffers on the way
			parent := t.TempDir()
			dir := filepath.Join(parent, "saved")
			r.relay.slowDown(true)
			done := make(chan error, 1)
			go func() { done <- d.Checkpoint(context.Background(), id, dir, driver.CheckpointOptions{Stop: true}) }()
			eventually(t, "a part has arrived", func() error {
				parts, err := filepath.Glob(filepath.Join(parent, ".new-*", "*"))
				if err == nil && len(parts) == 0 {
					err = errors.New("not yet")
				}
				return err
			})
			if restart {
				r.StopWorker()
				r.StartWorker(t)
			} else {
				r.relay.cut()
			}
			r.relay.slowDown(false)
			wantCode(t, "Checkpoint() that breaks off", <-done, sandbox.Unavailable)
			wantOnly(t, parent)
			r.wantNothingUnderWay(t)
			r.wantAnswer(t, id)
			if err := d.Checkpoint(within(t), id, dir, driver.CheckpointOptions{Stop: true}); err != nil {
				t.Errorf("Checkpoint() again = %v", err)
			}
			wantOnly(t, parent, "saved")
			r.wantNothingUnderWay(t)
		})
	}
	t.Run("Before", func(t *testing.T) {
		r := newRig(t)
		id := r.started(t)
		parent := t.TempDir()
		r.host.SetFaults(fake.Faults{Checkpoint: func(ctx context.Context, _ sandbox.ID) error {
			r.relay.cut()
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		err := r.Control().Checkpoint(within(t), id, filepath.Join(parent, "saved"), driver.CheckpointOptions{Stop: true})
		wantCode(t, "Checkpoint() that is cut off", err, sandbox.Unavailable)
		wantOnly(t, parent)
		r.wantAnswer(t, id)
	})
}

// TestCheckpointLargerThanItsBox checks that a worker cannot send more than a box may have, and that the box goes on.
func TestCheckpointLargerThanItsBox(t *testing.T) {
	r := newRig(t)
	id := r.started(t)
	r.fill(t, id, 1<<20)
	parent := t.TempDir()
	err := r.Control().Checkpoint(within(t), id, filepath.Join(parent, "saved"), driver.CheckpointOptions{Stop: true, MaxBytes: 1 << 20})
	wantCode(t, "Checkpoint() of more than the box may have", err, sandbox.Unavailable)
	wantOnly(t, parent)
	r.wantNothingUnderWay(t)
	r.wantAnswer(t, id)
	if err := r.Control().Checkpoint(within(t), id, filepath.Join(parent, "saved"), driver.CheckpointOptions{Stop: true, MaxBytes: driver.MaxCheckpoint(spec().Resources)}); err != nil {
		t.Errorf("Checkpoint() = %v", err)
	}
}
