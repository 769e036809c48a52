package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// cached returns the names of the root filesystems that the worker has.
func (r *rig) cached(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.Dir(), "images", "images"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// newImage writes a root filesystem.
func newImage(t *testing.T, dir string, size int) string {
	t.Helper()
	path, err := writeImage(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// saved makes a checkpoint of a box with a large file.
func (r *rig) saved(t *testing.T, size int64) (driver.Spec, string) {
	t.Helper()
	s := spec()
	d := r.Control()
	if _, err := d.Create(within(t), s); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(within(t), s.ID); err != nil {
		t.Fatal(err)
	}
	r.fill(t, s.ID, size)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := d.Checkpoint(within(t), s.ID, dir, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	if err := d.Destroy(within(t), s.ID); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// TestCallsDoNotWaitForFiles checks that calls for files that the worker lacks fail, and leave nothing.
func TestCallsDoNotWaitForFiles(t *testing.T) {
	r := newRig(t)
	d := r.Control().Driver
	s, dir := r.saved(t, 1)
	_, err := d.Restore(within(t), s, dir)
	if !errors.Is(err, driver.ErrNotStaged) {
		t.Errorf("Restore() of a checkpoint that is not staged = %v", err)
	}
	release, err := d.Stage(within(t), "", s, dir)
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	release()
	if _, err = d.Restore(within(t), s, dir); !errors.Is(err, driver.ErrNotStaged) {
		t.Errorf("Restore() of a checkpoint that is not staged any more = %v", err)
	}
	s.RootFS = newImage(t, t.TempDir(), 4096)
	if _, err = d.Create(within(t), s); !errors.Is(err, driver.ErrNotStaged) || sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Create() with a root filesystem that the worker does not have = %v", err)
	}
	for _, bad := range []string{"/etc/passwd", "relative", strings.TrimSuffix(s.RootFS, ".erofs"), filepath.Join(filepath.Dir(s.RootFS), stack.FileName("sha256:"+strings.Repeat("0", 64)))} {
		_, err := d.Stage(within(t), "", driver.Spec{RootFS: bad}, "")
		wantCode(t, "Stage() of "+bad, err, sandbox.Invalid)
	}
	_, err = d.Stage(within(t), "", driver.Spec{RootFS: rootfs}, filepath.Join(t.TempDir(), "none"))
	wantCode(t, "Stage() of a checkpoint that does not exist", err, sandbox.NotFound)
	if ids, err := d.List(within(t)); err != nil || len(ids) != 0 {
		t.Errorf("List() = %v, %v, want none", ids, err)
	}
	r.wantNothingUnderWay(t)
}

// TestStageIsShared checks that several callers share a transfer, and that the checkpoint stays until the last of them is done.
func TestStageIsShared(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	s, dir := r.saved(t, 1<<20)
	releases := make(chan func(), 8)
	var all sync.WaitGroup
	for range cap(releases) {
		all.Go(func() {
			release, err := d.Stage(within(t), "", s, dir)
			if err != nil {
				t.Errorf("Stage() = %v", err)
				return
			}
			releases <- release
		})
	}
	all.Wait()
	if entries, err := os.ReadDir(filepath.Join(r.Dir(), "under-way")); err != nil || len(entries) != 1 {
		t.Errorf("the worker has %v, %v, want one checkpoint", entries, err)
	}
	layers, _ := filepath.Glob(filepath.Join(r.Dir(), "under-way", "*", driver.LayerFile))
	var layer syscall.Stat_t
	if len(layers) != 1 || syscall.Stat(layers[0], &layer) != nil || layer.Blocks != 0 || layer.Size < 1<<20 {
		t.Errorf("the layers %q have %d bytes in %d blocks, want one file without its content, which a restore does not need", layers, layer.Size, layer.Blocks)
	}
	for range cap(releases) - 1 {
		release := <-releases
		release()
		release()
	}
	if _, err := d.Driver.Restore(within(t), s, dir); err != nil {
		t.Errorf("Restore() = %v", err)
	}
	(<-releases)()
	r.wantNothingUnderWay(t)
}

// TestCutWhileStaging checks that a transfer that breaks off begins again, and leaves nothing if its caller gives up.
func TestCutWhileStaging(t *testing.T) {
	for _, what := range []string{"image", "checkpoint"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			s, dir := r.saved(t, 16<<20)
			pattern := filepath.Join(r.Dir(), "under-way", "*", "*")
			if what == "image" {
				s.RootFS, dir = newImage(t, t.TempDir(), 16<<20), ""
				pattern = filepath.Join(r.Dir(), "images", "images", ".new-*")
			}
			arrives := func() {
				eventually(t, "a part has arrived", func() error {
					if parts, _ := filepath.Glob(pattern); len(parts) == 0 {
						return errors.New("not yet")
					}
					return nil
				})
			}
			r.relay.slowDown(true)
			ctx, cancel := context.WithCancel(within(t))
			done := make(chan error, 1)
			go func() {
				_, err := d.Stage(ctx, "", s, dir)
				done <- err
			}()
			arrives()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Stage() that is canceled = %v", err)
			}
			r.wantNothingUnderWay(t)
			var release func()
			go func() {
				var err error
				release, err = d.Stage(within(t), "", s, dir)
				done <- err
			}()
			arrives()
			r.relay.cut()
			r.relay.slowDown(false)
			if err := <-done; err != nil {
				t.Fatalf("Stage() that was cut off = %v", err)
			}
			if parts, _ := filepath.Glob(filepath.Join(r.Dir(), "images", "images", ".new-*")); len(parts) != 0 {
				t.Errorf("remains: %q", parts)
			}
			release()
			r.wantNothingUnderWay(t)
		})
	}
}

// TestConnectionEndsWhileStaged checks that a checkpoint goes with its connection, and can be staged again.
func TestConnectionEndsWhileStaged(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	s, dir := r.saved(t, 1)
	release, err := d.Stage(within(t), "", s, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	r.relay.cut()
	r.wantNothingUnderWay(t)
	eventually(t, "the next stage begins anew", func() error {
		_, err := d.Restore(within(t), s, dir)
		return err
	})
}

// TestWorkerWithAFullDisk checks that a root filesystem and a checkpoint are refused that have no space, and that boxes go on and are saved.
func TestWorkerWithAFullDisk(t *testing.T) {
	r := newRig(t)
	s, dir := r.saved(t, 1<<20)
	id := r.started(t)
	r.StopWorker()
	r.KeepFree = 1 << 60
	r.StartWorker(t)
	_, err := r.Control().Stage(within(t), "", driver.Spec{RootFS: newImage(t, t.TempDir(), 4096)}, "")
	wantCode(t, "Stage() on a full disk", err, sandbox.DiskFull)
	_, err = r.Control().Stage(within(t), "", s, dir)
	wantCode(t, "Stage() of a checkpoint on a full disk", err, sandbox.DiskFull)
	r.wantNothingUnderWay(t)
	if err := r.Control().Checkpoint(within(t), id, filepath.Join(t.TempDir(), "saved"), driver.CheckpointOptions{}); err != nil {
		t.Errorf("Checkpoint() fails although saves may use this space: %v", err)
	}
	r.wantAnswer(t, id)
}

// TestServerWithAFullDisk checks that a checkpoint leaves the space free that the server keeps, and that its box goes on.
func TestServerWithAFullDisk(t *testing.T) {
	r := newRig(t)
	r.MinFreeDisk = 1 << 60
	d := r.Restart(t, r.Control().Driver)
	id := r.started(t)
	dir := t.TempDir()
	err := d.Checkpoint(within(t), id, filepath.Join(dir, "saved"), driver.CheckpointOptions{Stop: true})
	wantCode(t, "Checkpoint() on a full disk", err, sandbox.DiskFull)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("remains: %v, %v", entries, err)
	}
	r.wantAnswer(t, id)
}

// TestFilesThatCannotBeRead checks that a transfer ends whose files become shorter on the server meanwhile, and gives its place back.
func TestFilesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		checkpoint bool
		want       sandbox.Code
	}{"Image": {false, sandbox.Unavailable}, "Checkpoint": {true, sandbox.Unsupported}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			s, dir := r.saved(t, 1<<20)
			damaged := filepath.Join(dir, "files.tar")
			if !c.checkpoint {
				s.RootFS, dir = newImage(t, t.TempDir(), 256<<10), ""
				damaged = s.RootFS
			}
			var releases []func()
			for range remote.Places {
				release, err := d.TakePlace(within(t), "")
				if err != nil {
					t.Fatal(err)
				}
				releases = append(releases, release)
			}
			done := make(chan error, 1)
			go func() {
				_, err := d.Stage(within(t), "", s, dir)
				done <- err
			}()
			eventually(t, "the transfer waits", func() error {
				if d.Waiting() == 0 {
					return errors.New("not yet")
				}
				return nil
			})
			if err := os.Truncate(damaged, 100<<10); err != nil {
				t.Fatal(err)
			}
			releases[0]()
			wantCode(t, "Stage() of files that become shorter", <-done, c.want)
			release, err := d.Stage(within(t), "", driver.Spec{RootFS: newImage(t, t.TempDir(), 4096)}, "")
			if err != nil {
				t.Fatalf("Stage() = %v", err)
			}
			release()
			for _, release := range releases[1:] {
				release()
			}
			r.wantNothingUnderWay(t)
		})
	}
}

// TestTransfersAreShared checks that a workspace with many transfers does not keep another from its first.
func TestTransfersAreShared(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	var releases []func()
	for range remote.Places {
		release, err := d.TakePlace(within(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	r.relay.slowDown(true)
	dir := t.TempDir()
	var all sync.WaitGroup
	var images []string
	for i, w := range []sandbox.WorkspaceID{"a", "a", "a", "b"} {
		path := newImage(t, dir, 1<<20)
		images = append(images, path)
		all.Go(func() {
			release, err := d.Stage(within(t), w, driver.Spec{RootFS: path}, "")
			if err != nil {
				t.Errorf("Stage() = %v", err)
				return
			}
			release()
			if w == "b" { // the other workspace may have no more places until then
				for _, release := range releases {
					release()
				}
			}
		})
		eventually(t, "the transfer waits", func() error {
			if d.Waiting() <= i {
				return errors.New("not yet")
			}
			return nil
		})
	}
	releases[0]()
	all.Wait()
	arrived := func(path string) time.Time {
		info, err := os.Stat(filepath.Join(r.Dir(), "images", "images", filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	for _, path := range images[:3] {
		if !arrived(images[3]).Before(arrived(path)) {
			t.Error("the transfer of the other workspace is not the first")
		}
	}
}

// TestCheckpointsOnTheWorkerAreShared checks that the checkpoints of a workspace do not fill the worker, and keep neither another workspace
// nor the server from theirs.
func TestCheckpointsOnTheWorkerAreShared(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	s, saved := r.saved(t, 1)
	stage := func(w sandbox.WorkspaceID) chan func() {
		dir := filepath.Join(t.TempDir(), "saved")
		if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
		done := make(chan func(), 1)
		go func() {
			release, err := d.Stage(within(t), w, s, dir)
			if err != nil {
				t.Errorf("Stage() = %v", err)
				release = func() {}
			}
			done <- release
		}()
		return done
	}
	var releases []func()
	for range remote.Kept {
		release, err := d.TakeKept(within(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	waits := func(n int) {
		eventually(t, "the checkpoint waits", func() error {
			if d.WaitingToBeKept() != n {
				return errors.New("not yet")
			}
			return nil
		})
	}
	ofA := stage("a")
	waits(1)
	ofB := stage("b")
	waits(2)
	(<-stage(""))()
	r.wantNothingUnderWay(t)
	releases[0]()
	(<-ofB)()
	waits(1) // the other place of the workspace b stays reserved
	for _, release := range releases[1:] {
		release()
	}
	(<-ofA)()
	r.wantNothingUnderWay(t)
}
