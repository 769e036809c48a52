package archiver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// fixture has the parts of a service beside its object store, in a directory.
type fixture struct {
	driver.Driver
	Records
	States
	Checkpoints
	quota.Store
	quota.Disk

	t       *testing.T
	service *Service
	slow    sandbox.ID // the sandbox whose upload does not end before the work
	cfg     Config
	saved   *checkpoint.Store
	work    *background.Group
	boxes   []*box.Box
	begun   chan upload   // of each upload
	finish  chan struct{} // an element for the end of each upload
	sweeps  atomic.Int32
	endless bool // sweeps do not end before the work
	owner   *sandbox.Ownership

	mu     sync.Mutex
	copied map[sandbox.CheckpointID]int // guarded by mu
	kept   []sandbox.Checkpoint         // guarded by mu
	order  []sandbox.CheckpointID       // guarded by mu
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, work: background.New(), begun: make(chan upload, 100), finish: make(chan struct{}, 100), copied: map[sandbox.CheckpointID]int{}}
	f.cfg = Config{URL: "file://" + filepath.Join(t.TempDir(), "bucket"), Grace: time.Hour, After: time.Minute, Installation: "i"}
	saved, err := checkpoint.Open(filepath.Join(t.TempDir(), "saved"), nil, f, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.saved = saved
	store, err := archive.Open(t.Context(), f.cfg.URL, "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// pause adds paused sandboxes of a workspace.
func (f *fixture) pause(ws sandbox.WorkspaceID, n int) {
	f.t.Helper()
	for range n {
		sb := sandbox.Sandbox{ID: sandbox.NewID(), Workspace: ws, State: sandbox.Paused, PausedAt: time.Now(), Saved: sandbox.NewCheckpointID()}
		dir := f.saved.Path(sb.ID, sb.Saved)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "layer"), []byte(sb.ID), 0o600); err != nil {
			f.t.Fatal(err)
		}
		b := box.New(f.work, sb.ID, agentapi.NewClient(nil))
		b.Lock()
		b.Set(sb)
		b.Unlock()
		f.boxes = append(f.boxes, b)
	}
}

// run runs a service, which ends with do.
func (f *fixture) run(do func()) {
	f.work.Start()
	s := New(f.cfg, Deps{
		Records: f, States: f, Checkpoints: f, Sandboxes: f, Boxes: func() []*box.Box { return f.boxes }, Saved: f.saved, Driver: f,
		Quotas: quota.New(quota.Config{}, f, f, slog.New(slog.DiscardHandler)), Work: f.work, Owner: f.owner, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	})
	f.service = s
	f.work.Go(s.Run)
	do()
	f.work.Stop()
	f.work.Cancel()
	close(f.finish)
	if err := f.work.Wait(context.Background()); err != nil {
		f.t.Error(err)
	}
	if err := s.Close(); err != nil {
		f.t.Error(err)
	}
}

// Needs implements [driver.Carrier]. Each upload waits there.
func (f *fixture) Needs(dir string) ([]string, error) {
	for _, b := range f.boxes {
		if sb := b.View().Sandbox; f.saved.Path(sb.ID, sb.Saved) == dir {
			f.begun <- upload{sandbox: sb.ID, share: share{workspace: sb.Workspace}}
			if sb.ID == f.slow {
				<-f.work.Context().Done()
			}
		}
	}
	if filepath.Base(filepath.Dir(dir)) == "forks" { // of a checkpoint
		f.begun <- upload{}
	}
	<-f.finish
	return nil, nil
}

// Find implements [Sandboxes].
func (f *fixture) Find(_ context.Context, _ sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error) {
	for _, b := range f.boxes {
		if string(b.ID) == ref {
			return b, b.View().Sandbox, nil
		}
	}
	return nil, sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "no sandbox %s", ref)
}

func (f *fixture) Place(string) (string, error) { return "", nil }

func (f *fixture) Capabilities() driver.Capabilities { return driver.Capabilities{} }

func (f *fixture) Archive(_ context.Context, id sandbox.ID, _ sandbox.CheckpointID, _ int64, _ sandbox.Event, _ quota.Admission) (sandbox.Sandbox, error) {
	for _, b := range f.boxes {
		if b.ID == id {
			sb := b.View().Sandbox
			sb.ArchivedAt = time.Now()
			return sb, nil
		}
	}
	return sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "no sandbox %s", id)
}

// Copied implements [Records].
func (f *fixture) Copied(_ context.Context, id sandbox.ID, saved sandbox.CheckpointID, _ int64, _ time.Time, _ quota.Admission) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copied[saved]++
	return nil
}

// Uncopied implements [States].
func (f *fixture) Uncopied(context.Context) (list []sandbox.CheckpointID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.boxes {
		if sb := b.View().Sandbox; f.copied[sb.Saved] == 0 && sb.ArchivedAt.IsZero() {
			list = append(list, sb.Saved)
		}
	}
	return list, nil
}

// UncopiedCheckpoints implements [Checkpoints].
func (f *fixture) UncopiedCheckpoints(context.Context) (list []sandbox.Checkpoint, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cp := range f.kept {
		if f.copied[cp.ID] == 0 {
			list = append(list, cp)
		}
	}
	return list, nil
}

func (f *fixture) BeginCopy(context.Context, sandbox.CheckpointID) error { return nil }

func (f *fixture) CheckpointCopied(_ context.Context, id sandbox.CheckpointID, _ int64, _ time.Time, _ quota.Admission) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copied[id]++
	f.order = append(f.order, id)
	return nil
}

func (f *fixture) Any(context.Context) (bool, error) { return true, nil }

func (f *fixture) Stored(context.Context, sandbox.CheckpointID) (int64, error) { return 0, nil }

func (f *fixture) Sent(context.Context, sandbox.WorkspaceID) (int64, error) { return 0, nil }

func (f *fixture) AddSent(context.Context, sandbox.WorkspaceID, int64) error { return nil }

func (f *fixture) ClearSent(context.Context) error { return nil }

// Released is called by each sweep.
func (f *fixture) Released(ctx context.Context, _ sandbox.WorkspaceID, _ time.Time, _ int) ([]sandbox.CheckpointID, error) {
	f.sweeps.Add(1)
	if f.endless {
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

func (f *fixture) Known(context.Context, sandbox.CheckpointID) (bool, error) { return true, nil }

func (f *fixture) Quota(context.Context, sandbox.WorkspaceID) (quota.Limits, error) {
	return quota.Limits{}, nil
}

func (f *fixture) QuotaUse(context.Context, sandbox.WorkspaceID) (quota.Use, error) {
	return quota.Use{}, nil
}

func (f *fixture) Unrecorded(sandbox.WorkspaceID) (u quota.UnrecordedDisk) { return u }

// TestBacklogTakesTurns archives sandboxes of three workspaces: two at a time, and of each workspace as many.
func TestBacklogTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.pause("a", 20) // the first
		time.Sleep(time.Second)
		f.pause("b", 2)
		f.pause("c", 2)
		time.Sleep(time.Minute)
		got := map[sandbox.WorkspaceID]int{}
		f.run(func() {
			synctest.Wait()
			for n := range 6 { // the first two are in progress
				if n >= uploads {
					f.finish <- struct{}{}
					synctest.Wait() // not for the next tick
				}
				select {
				case u := <-f.begun:
					got[u.workspace]++
				default:
					t.Errorf("no upload after %d", n)
				}
			}
			if len(f.begun) > 0 {
				t.Errorf("more than %d uploads at a time", uploads)
			}
		})
		if diff := cmp.Diff(map[sandbox.WorkspaceID]int{"a": 2, "b": 2, "c": 2}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestBacklogHoldsUpNothing archives sandboxes while an upload never ends: others are archived, and the service sweeps.
func TestBacklogHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.pause("a", 20)
		time.Sleep(time.Minute)
		f.run(func() {
			synctest.Wait()
			for range 18 {
				f.finish <- struct{}{}
				synctest.Wait()
			}
			before := f.sweeps.Load()
			time.Sleep(10*sweepEvery + tick)
			if got := f.sweeps.Load() - before; got != 10 {
				t.Errorf("%d sweeps in ten hours of an upload", got)
			}
			if len(f.begun) != 20 {
				t.Errorf("%d of 20 uploads have begun", len(f.begun))
			}
		})
	})
}

// TestBacklogCopies copies the states of sandboxes once each while they are paused, and archives those later that stay paused. The local files stay beside the copies.
func TestBacklogCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Copies, f.cfg.After = true, time.Hour
		f.pause("a", 3)
		for range cap(f.finish) {
			f.finish <- struct{}{}
		}
		f.run(func() {
			time.Sleep(2 * tick)
			synctest.Wait()
			f.mu.Lock()
			copied := maps.Clone(f.copied)
			f.mu.Unlock()
			for _, b := range f.boxes {
				sb := b.View().Sandbox
				if copied[sb.Saved] != 1 || !sb.ArchivedAt.IsZero() {
					t.Errorf("state %s was copied %d times, archived at %s", sb.Saved, copied[sb.Saved], sb.ArchivedAt)
				}
				if _, err := os.Stat(f.saved.Path(sb.ID, sb.Saved)); err != nil {
					t.Errorf("local files of a copied state: %v", err)
				}
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for _, b := range f.boxes {
				if b.View().Sandbox.ArchivedAt.IsZero() {
					t.Errorf("sandbox %s is not archived after an hour", b.ID)
				}
			}
		})
	})
}

// TestArchiveDuringACopy archives a sandbox that is being copied.
func TestArchiveDuringACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.pause("a", 1)
		f.run(func() {
			if _, err := f.service.start(f.boxes[0], "", true); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for range 2 {
				f.finish <- struct{}{}
			}
			sb, err := f.service.Archive(t.Context(), sandbox.Caller{User: "u"}, string(f.boxes[0].ID))
			if err != nil || sb.ArchivedAt.IsZero() || f.copied[sb.Saved] != 1 {
				t.Errorf("archive during a copy = %+v, %v; copied %v", sb, err, f.copied)
			}
		})
	})
}

// TestSweepHoldsUpNoUploads archives sandboxes beside a sweep that never ends.
func TestSweepHoldsUpNoUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.endless = true
		f.pause("a", 5)
		time.Sleep(time.Minute)
		f.run(func() {
			synctest.Wait()
			f.finish <- struct{}{}
			synctest.Wait()
			if len(f.begun) != 3 || f.sweeps.Load() != 1 {
				t.Errorf("%d uploads have begun beside %d sweeps, want 3 beside 1", len(f.begun), f.sweeps.Load())
			}
		})
	})
}

// TestSlowUploadTakesASingleSlot archives sandboxes of a single workspace while the upload of the sandbox that is paused for the longest time takes
// many ticks. The backlog began it, or the owner asked for it.
func TestSlowUploadTakesASingleSlot(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked=%t", asked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.pause("a", 1)
				f.slow = f.boxes[0].ID
				time.Sleep(time.Second)
				f.pause("a", 4)
				f.run(func() {
					if asked {
						if _, err := f.service.start(f.boxes[0], "asked for", false); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(2 * tick)
					for range 2 {
						f.finish <- struct{}{}
						time.Sleep(tick)
					}
					if len(f.begun) != 4 {
						t.Errorf("%d uploads have begun, want 4: the slow upload, two that have ended, and another", len(f.begun))
					}
				})
			})
		})
	}
}

// TestStatesThatCannotBeSentHoldUpNothing archives sandboxes after some whose local states are missing, or have a file that is none.
func TestStatesThatCannotBeSentHoldUpNothing(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"missing": os.RemoveAll,
		"foreign": func(dir string) error { return os.Symlink("layer", filepath.Join(dir, "link")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.pause("a", 3)
				bad := f.boxes
				for _, b := range bad {
					sb := b.View().Sandbox
					if err := spoil(f.saved.Path(sb.ID, sb.Saved)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				f.pause("a", 5)
				time.Sleep(time.Minute)
				for range cap(f.finish) {
					f.finish <- struct{}{}
				}
				f.run(func() {
					time.Sleep(5 * tick)
					synctest.Wait()
					for i, b := range f.boxes {
						if got := !b.View().Sandbox.ArchivedAt.IsZero(); got != (i >= len(bad)) {
							t.Errorf("sandbox %d is archived: %v", i, got)
						}
					}
					if err := f.service.archive(bad[0], "asked for", false); name == "missing" && sandbox.CodeOf(err) != sandbox.Conflict {
						t.Errorf("archive of a state that is missing = %v, want conflict", err)
					}
				})
			})
		})
	}
}

// TestThePrimarySweepsTheBucket: of several servers the primary alone removes stored states.
func TestThePrimarySweepsTheBucket(t *testing.T) {
	for i, part := range sandbox.Parts(2) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.owner = sandbox.Own(part)
			f.run(func() { time.Sleep(3 * sweepEvery) })
			if got := f.sweeps.Load(); (got > 0) != (i == 0) {
				t.Errorf("server %d has swept the bucket %d times", i, got)
			}
		})
	}
}
