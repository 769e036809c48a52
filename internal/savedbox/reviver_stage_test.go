package savedbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/usage"
)

// stager is a driver whose files are staged by a function.
type stager struct {
	*fake.Driver
	stage func(ctx context.Context, rootfs, checkpoint string) (func(), error)
}

func (s *stager) Stage(ctx context.Context, _ sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (func(), error) {
	return s.stage(ctx, spec.RootFS, checkpoint)
}

// TestSlowTransferKeepsTheMemory: the files of a box are brought to its driver before its turn and without a deadline, so that a slow transfer
// does not look like a useless memory. Neither does a transfer that fails.
func TestSlowTransferKeepsTheMemory(t *testing.T) {
	e := newEnv(t)
	if err := e.saver.Save(e.box, e.path, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Fatal(err)
	}
	host := &service{slots: fairsem.NewBrief(1), rootfs: t.TempDir()}
	var steps []string
	step := func(name string, err error) fake.Fault {
		return func(context.Context, sandbox.ID) error { steps = append(steps, name); return err }
	}
	refused := sandbox.Errorf(sandbox.Unavailable, "the driver is busy")
	e.host.SetFaults(fake.Faults{Restore: step("restore", refused), Create: step("create", refused), Destroy: step("destroy", nil)})
	defer e.host.SetFaults(fake.Faults{})
	var failed error
	d := &stager{e.driver, func(ctx context.Context, rootfs, _ string) (func(), error) {
		if _, has := ctx.Deadline(); has {
			t.Error("the transfer has a deadline")
		}
		if host.slots.Used() != 0 {
			t.Error("the transfer takes the turn of another box")
		}
		if rootfs != host.rootfs {
			t.Errorf("the root filesystem is %q", rootfs)
		}
		steps = append(steps, "stage")
		return func() { steps = append(steps, "release") }, failed
	}}
	host.driver = d
	reviver := savedbox.NewReviver(time.Minute, savedbox.ReviverDeps{
		Host: host, Saved: e.store, Driver: d, Images: host, Usage: usage.New(nil, d, slog.Default()), Logger: slog.Default(), Context: t.Context(),
	})
	want := func(err error, want ...string) {
		t.Helper()
		if sandbox.CodeOf(err) != sandbox.Unavailable || !slices.Equal(steps, want) {
			t.Errorf("steps %q, error %v, want %q and unavailable", steps, err, want)
		}
		steps = nil
	}
	_, err := reviver.BringBackOrAnew(e.box, e.path, "", sandbox.MemoryPrefer)
	want(err, "stage", "restore", "release")
	_, err = reviver.StartAnew(e.box, e.path)
	want(err, "stage", "create", "release")
	failed = sandbox.Errorf(sandbox.Unavailable, "the connection was lost")
	_, err = reviver.BringBackOrAnew(e.box, e.path, "", sandbox.MemoryPrefer)
	want(err, "stage")
}

// TestLateRestore: a restore that is not done in time is tried again, because something else may have ended the box. Without an answer of
// the worker the time says nothing about the memory.
func TestLateRestore(t *testing.T) {
	for name, c := range map[string]struct {
		away  error
		steps []string
	}{"Answered": {nil, []string{"restore", "destroy", "restore"}}, "Away": {driver.ErrAway, []string{"restore"}}} {
		e := newEnv(t)
		if err := e.saver.Save(e.box, e.path, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
			t.Fatal(err)
		}
		var steps []string
		e.host.SetFaults(fake.Faults{
			Restore: func(ctx context.Context, _ sandbox.ID) error {
				steps = append(steps, "restore")
				<-ctx.Done()
				return errors.Join(c.away, context.Cause(ctx))
			},
			Destroy: func(context.Context, sandbox.ID) error { steps = append(steps, "destroy"); return nil },
		})
		host := &service{slots: fairsem.NewBrief(1), rootfs: t.TempDir()}
		reviver := savedbox.NewReviver(time.Millisecond, savedbox.ReviverDeps{
			Host: host, Saved: e.store, Driver: e.driver, Images: host, Usage: usage.New(nil, e.driver, slog.Default()), Logger: slog.Default(), Context: t.Context(),
		})
		if _, err := reviver.BringBackOrAnew(e.box, e.path, "", sandbox.MemoryRequire); !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(steps, c.steps) {
			t.Errorf("%s: steps %q, error %v, want %q and the end of the time", name, steps, err, c.steps)
		}
		e.host.SetFaults(fake.Faults{})
	}
}
