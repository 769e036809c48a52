package savedbox_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/usage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a [savedbox.Host] and [savedbox.Images] with one image.
type service struct {
	driver driver.Driver
	slots  *fairsem.Semaphore
	rootfs string
}

func (s *service) Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec {
	return driver.Spec{
		ID: sb.ID, Hostname: "box", RootFS: rootfs, MaxProcesses: 64,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: 1 << 30},
	}
}

func (s *service) Stage(ctx context.Context, ws sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (func(), error) {
	return driver.Stage(ctx, s.driver, ws, spec, checkpoint)
}

func (s *service) Turn(ctx context.Context, ws sandbox.WorkspaceID) (func(), error) {
	return s.slots.Acquire(ctx, ws, nil)
}

func (s *service) Resolve(context.Context, string) (spec.Image, string, error) {
	return spec.Image{}, s.rootfs, nil
}

// env has a started box with a file.
type env struct {
	host    *fake.Host
	driver  *fake.Driver
	store   *checkpoint.Store
	saver   *savedbox.Saver
	reviver *savedbox.Reviver
	box     *box.Box
	path    string // for a checkpoint of the box
}

func newEnv(t *testing.T) *env {
	t.Helper()
	dir, err := os.MkdirTemp("", "box") // shorter than t.TempDir: sockets may live below
	if err != nil {
		t.Fatal(err)
	}
	e := &env{host: fake.NewHost(dir)}
	e.driver = fake.New(e.host)
	t.Cleanup(func() {
		if err := errors.Join(e.driver.Close(), e.host.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	group := background.New()
	group.Start()
	t.Cleanup(group.Cancel)
	if e.store, err = checkpoint.Open(filepath.Join(t.TempDir(), "saved"), nil, e.driver, nil, slog.Default()); err != nil {
		t.Fatal(err)
	}
	host := &service{slots: fairsem.NewBrief(1), rootfs: t.TempDir()}
	e.saver = savedbox.NewSaver(e.driver, e.store, func(context.Context, *box.Box) error { return nil }, nil, time.Millisecond)
	e.reviver = savedbox.NewReviver(time.Minute, savedbox.ReviverDeps{
		Host: host, Saved: e.store, Driver: e.driver, Images: host, Usage: usage.New(nil, e.driver, slog.Default()), Logger: slog.Default(),
		Context: group.Context(),
	})
	e.box = box.New(group, sandbox.NewID(), agentapi.NewClient(nil))
	t.Cleanup(e.box.Cancel)
	sb := sandbox.Sandbox{ID: e.box.ID, State: sandbox.Running, Workspace: "w", Saved: sandbox.NewCheckpointID()}
	e.box.Set(sb)
	e.path = e.store.Path(e.box.ID, sb.Saved)
	if _, err := e.driver.Create(t.Context(), host.Spec(&sb, host.rootfs)); err != nil {
		t.Fatal(err)
	}
	if err := e.driver.Start(t.Context(), e.box.ID); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSaveErrorSaysThatTheDriverBegan: a failure before that leaves it open whether the box can be saved.
func TestSaveErrorSaysThatTheDriverBegan(t *testing.T) {
	e := newEnv(t)
	broken := errors.New("broken")
	e.host.SetFaults(fake.Faults{Stats: fake.Fail(broken)})
	var failed *savedbox.SaveError
	if err := e.saver.Save(e.box, e.path, driver.CheckpointOptions{}); !errors.Is(err, broken) || errors.As(err, &failed) {
		t.Errorf("Save of a box that cannot be measured = %#v, want another error", err)
	}
	e.host.SetFaults(fake.Faults{Checkpoint: fake.Fail(broken)})
	saves := e.box.Saves()
	if err := e.saver.Save(e.box, e.path, driver.CheckpointOptions{}); !errors.Is(err, broken) || !errors.As(err, &failed) || failed.ID != e.box.ID {
		t.Errorf("Save of a box that cannot be saved = %#v, want a SaveError", err)
	}
	if !e.box.SavedSince(saves) || e.box.SavedSince(e.box.Saves()) {
		t.Error("the box does not know that it was being saved, or is not any more")
	}
}

func TestSaveToCopiesThePausedState(t *testing.T) {
	e := newEnv(t)
	if err := e.saver.SaveTo(e.box, e.path, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Fatal(err)
	}
	sb := e.box.Sandbox()
	sb.State = sandbox.Paused
	e.box.Lock()
	e.box.Set(sb)
	e.box.Unlock()
	e.host.SetFaults(fake.Faults{Checkpoint: fake.Fail(errors.New("the box is gone"))})
	id := sandbox.NewCheckpointID()
	if err := e.saver.SaveTo(e.box, e.store.Path(e.box.ID, id), driver.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if !e.store.IsComplete(e.box.ID, id) {
		t.Error("there is no copy")
	}
	sb.State = sandbox.Resuming
	e.box.Lock()
	e.box.Set(sb)
	e.box.Unlock()
	if err := e.saver.SaveTo(e.box, e.path, driver.CheckpointOptions{}); err == nil {
		t.Error("SaveTo of a box that is being resumed succeeded")
	}
}

// TestBringBackOrAnewByPolicy: a damaged memory is tried twice, with a box destroyed before each other attempt; only a policy that
// permits it begins a new box.
func TestBringBackOrAnewByPolicy(t *testing.T) {
	for memory, want := range map[sandbox.MemoryPolicy][]string{
		sandbox.MemoryRequire: {"restore", "destroy", "restore"},
		sandbox.MemoryPrefer:  {"restore", "destroy", "restore", "destroy", "create"},
	} {
		e := newEnv(t)
		if err := e.saver.Save(e.box, e.path, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
			t.Fatal(err)
		}
		var steps []string
		step := func(name string, err error) fake.Fault {
			return func(context.Context, sandbox.ID) error {
				steps = append(steps, name)
				return err
			}
		}
		e.host.SetFaults(fake.Faults{
			Restore: step("restore", sandbox.Errorf(sandbox.Unsupported, "what was saved is damaged")), Destroy: step("destroy", nil),
			Create: step("create", sandbox.Errorf(sandbox.Unsupported, "no box can be made")),
		})
		_, err := e.reviver.BringBackOrAnew(e.box, e.path, "", memory)
		if sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v, want code unsupported and the reason", memory, err)
		}
		if anew := memory == sandbox.MemoryPrefer; strings.Contains(err.Error(), "no box can be made") != anew {
			t.Errorf("%s: %v", memory, err)
		}
		if !slices.Equal(steps, want) {
			t.Errorf("%s: steps %q, want %q", memory, steps, want)
		}
		e.host.SetFaults(fake.Faults{})
	}
}

// TestBringBackWaitsForItsTurn: a sandbox that is resumed, which would lose more, waits for longer than a new one, but not forever.
func TestBringBackWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &service{slots: fairsem.NewBrief(1)}
		release, err := host.Turn(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		group := background.New()
		defer group.Cancel()
		b := box.New(group, "box", agentapi.NewClient(nil))
		defer b.Cancel()
		b.Set(sandbox.Sandbox{Workspace: "b"})
		begin := time.Now()
		reviver := savedbox.NewReviver(time.Second, savedbox.ReviverDeps{Host: host, Images: host})
		if _, err := reviver.BringBack(b, ""); sandbox.CodeOf(err) != sandbox.Unavailable || time.Since(begin) != fairsem.MaxWait {
			t.Errorf("BringBack after %s = %v", time.Since(begin), err)
		}
		if host.slots.Waiting() != 0 {
			t.Errorf("%d sandboxes wait", host.slots.Waiting())
		}
	})
}
