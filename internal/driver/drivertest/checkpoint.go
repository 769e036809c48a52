package drivertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// checkpointer returns the driver as a Checkpointer, or skips the test.
func (h *host) checkpointer(t *testing.T) driver.Checkpointer {
	t.Helper()
	c, ok := h.Driver.(driver.Checkpointer)
	if announced := h.Driver.Capabilities().Checkpoint; ok != announced && announced {
		t.Fatal("Capabilities() announces Checkpoint, the driver is no Checkpointer")
	} else if !announced {
		t.Skip("checkpoints are not supported here")
	}
	return c
}

// memory is the answer of the guest's "state".
type memory struct {
	name   string
	count  int64
	time   time.Time
	random string
}

// remember queries the state at a port.
func (b *box) remember(t *testing.T, port uint16) memory {
	t.Helper()
	c := b.dial(t, port)
	defer c.Close()
	text, err := bufio.NewReader(c).ReadString('\n')
	var m memory
	var seconds int64
	var works string
	if _, serr := fmt.Sscan(text, &m.name, &m.count, &seconds, &m.random, &works); err != nil || serr != nil {
		t.Fatalf("the state answers %q: %v, %v", text, err, serr)
	}
	if works != "ok" {
		t.Errorf("the state answers %q", text)
	}
	m.time = time.Unix(seconds, 0)
	return m
}

// wantOn checks that the state continues from an earlier one, and still changes.
func (b *box) wantOn(t *testing.T, port uint16, before memory) memory {
	t.Helper()
	now := b.remember(t, port)
	if now.name != before.name || now.count < before.count {
		t.Errorf("the state is %+v, was %+v", now, before)
	}
	if off := time.Since(now.time); off.Abs() > time.Minute {
		t.Errorf("the wall clock is off by %v", off)
	}
	eventually(t, "the count goes on", func() error {
		if again := b.remember(t, port); again.count == now.count {
			return errors.New("the count does not change")
		}
		return nil
	})
	return now
}

// withState starts a box that has a state, and a file.
func (h *host) withState(t *testing.T) (*box, uint16, memory) {
	t.Helper()
	b := h.start(t)
	port, _ := b.serve(t, "state")
	if _, err := b.client.WriteFile(within(t), guestDir+"/kept", stringReader("kept"), agentapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return b, port, b.remember(t, port)
}

// wantKept checks that the file of withState is there.
func (b *box) wantKept(t *testing.T) {
	t.Helper()
	if _, err := b.client.Stat(within(t), guestDir+"/kept"); err != nil {
		t.Errorf("the file that was written before is gone: %v", err)
	}
}

// restored makes a box from a checkpoint.
func (h *host) restored(t *testing.T, spec driver.Spec, dir string) *box {
	t.Helper()
	b := &box{h: h, spec: spec, id: spec.ID}
	var err error
	if b.handle, err = h.checkpointer(t).Restore(within(t), spec, dir); err != nil {
		t.Fatalf("Restore() = %v", err)
	}
	b.connect(t)
	return b
}

// wantAlone checks that there is nothing else beside a checkpoint.
func wantAlone(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("in the checkpoint's parent: %q, want %q", names, want)
	}
}

func testCheckpointGoesOn(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	held := b.dial(t, driver.AgentPort)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	wantAlone(t, dir, "saved")
	if err := c.CanRestore(dir); err != nil {
		t.Errorf("CanRestore() = %v", err)
	}
	_ = held.SetReadDeadline(time.Now().Add(testTimeout)) // fails on a closed connection
	if _, err := held.Read(make([]byte, 1<<10)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection from before the checkpoint lives: Read() = %v", err)
	}
	b.connect(t)
	b.wantOn(t, port, before)
	b.wantKept(t)
	wantCode(t, "Checkpoint() over another", c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}), sandbox.Exists)
	b.wantOn(t, port, before)
}

func testCheckpointStops(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{Stop: true}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	wantAlone(t, dir, "saved")
	if _, err := h.Driver.Wait(within(t), b.id); err != nil {
		t.Errorf("Wait() of a stopped box = %v", err)
	}
	_, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() of a stopped box", err, sandbox.Unavailable)
	_, err = c.Restore(within(t), b.spec, dir)
	wantCode(t, "Restore() beside the stopped box", err, sandbox.Exists)
	h.restart(t)
	c = h.checkpointer(t)
	wantCode(t, "Recover() of a stopped box", h.Driver.Recover(within(t), b.id, b.handle), sandbox.NotFound)
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	if err := c.CanRestore(dir); err != nil {
		t.Errorf("CanRestore() = %v", err)
	}
	b = h.restored(t, b.spec, dir)
	b.wantOn(t, port, before)
	b.wantKept(t)
	wantCode(t, "Start() of a restored box", h.Driver.Start(within(t), b.id), sandbox.Conflict)
	_, err = c.Restore(within(t), b.spec, dir)
	wantCode(t, "Restore() of a box that is there", err, sandbox.Exists)
	if h.Driver.Capabilities().Survives {
		h.restart(t)
		if err := h.Driver.Recover(within(t), b.id, b.handle); err != nil {
			t.Fatalf("Recover() of a restored box = %v", err)
		}
		b.connect(t)
		b.wantOn(t, port, before)
	}
}

// testCheckpointTaken checks that the box goes on if the caller does not take the checkpoint, and that the checkpoint is complete then.
func testCheckpointTaken(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	opts := driver.CheckpointOptions{Stop: true, Unsynced: true}
	opts.Take = func(_ context.Context, dir string) error {
		if err := c.CanRestore(dir); err != nil {
			t.Errorf("CanRestore() of a checkpoint to take = %v", err)
		}
		return sandbox.Errorf(sandbox.DiskFull, "there is no space for it")
	}
	wantCode(t, "Checkpoint() that is not taken", c.Checkpoint(within(t), b.id, dir, opts), sandbox.DiskFull)
	wantAlone(t, dir)
	b.connect(t)
	b.wantOn(t, port, before)
	opts.Take = func(context.Context, string) error { return nil }
	if err := c.Checkpoint(within(t), b.id, dir, opts); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	if memory, _ := c.Verify(within(t), dir); memory != nil {
		t.Errorf("Verify() = %v", memory)
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	h.restored(t, b.spec, dir).wantOn(t, port, before)
}

func testCheckpointLayer(t *testing.T, h *host) {
	c := h.checkpointer(t)
	h.snapshotter(t)
	b, port, before := h.withState(t)
	parent := t.TempDir()
	plain := filepath.Join(parent, "plain")
	if err := c.Checkpoint(within(t), b.id, plain, driver.CheckpointOptions{Volatile: true}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	_, err := c.OpenLayer(plain)
	wantCode(t, "OpenLayer() of a checkpoint without", err, sandbox.NotFound)
	for _, stop := range []bool{false, true} {
		dir := filepath.Join(parent, fmt.Sprint("stop-", stop))
		if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{Layer: true, Stop: stop}); err != nil {
			t.Fatalf("Checkpoint() = %v", err)
		}
		wantInLayer(t, c, dir)
		again := h.restored(t, h.Spec(), dir)
		if !h.ForksFilesOnly {
			again.wantOn(t, port, before)
		}
		if !stop {
			b.connect(t)
			before = b.wantOn(t, port, before)
		}
		again.wantKept(t)
		if memory, files := c.Verify(within(t), dir); memory != nil || files != nil {
			t.Errorf("Verify() = %v, %v", memory, files)
		}
		manifests, err := filepath.Glob(filepath.Join(dir, "manifest*"))
		if err != nil || len(manifests) == 0 {
			t.Fatalf("the checkpoint has the manifests %q, %v", manifests, err)
		}
		for _, name := range manifests {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, "CanRestore() of a damaged checkpoint", c.CanRestore(dir), sandbox.NotFound)
		wantInLayer(t, c, dir)
	}
}

// wantInLayer checks that a checkpoint has the file of withState in its layer.
func wantInLayer(t *testing.T, c driver.Checkpointer, dir string) {
	t.Helper()
	layer, err := c.OpenLayer(dir)
	if err != nil {
		t.Fatalf("OpenLayer() = %v", err)
	}
	defer layer.Close()
	if got := findInLayer(t, layer, strings.TrimPrefix(guestDir, "/")+"/kept"); got != "kept" {
		t.Errorf("in the layer the file holds %q", got)
	}
}

func testFork(t *testing.T, h *host) {
	c := h.checkpointer(t)
	parent, port, before := h.withState(t)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := c.Checkpoint(within(t), parent.id, dir, driver.CheckpointOptions{}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	const forks = 4
	var boxes [forks]*box
	var wg sync.WaitGroup
	for i := range boxes {
		spec := h.Spec()
		spec.Hostname = fmt.Sprintf("fork-%d", i)
		boxes[i] = &box{h: h, spec: spec, id: spec.ID}
		wg.Go(func() {
			var err error
			if boxes[i].handle, err = c.Restore(within(t), spec, dir); err != nil {
				t.Errorf("Restore() = %v", err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	random := map[string]bool{}
	for _, b := range boxes {
		b.connect(t)
		b.wantKept(t)
		if !h.ForksFilesOnly {
			random[b.wantOn(t, port, before).random] = true
		}
		if err := b.client.Remove(within(t), guestDir+"/kept", false); err != nil {
			t.Errorf("Remove() in a fork = %v", err)
		}
	}
	if !h.ForksFilesOnly && len(random) != forks {
		t.Errorf("%d forks have %d random numbers", forks, len(random))
	}
	parent.connect(t)
	parent.wantKept(t)
	parent.wantOn(t, port, before)
}

func testCheckpointRefused(t *testing.T, h *host) {
	c := h.checkpointer(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	wantCode(t, "Checkpoint() of an unknown box", c.Checkpoint(within(t), sandbox.NewID(), dir, driver.CheckpointOptions{}), sandbox.NotFound)
	wantCode(t, "Checkpoint() of a box that is not started", c.Checkpoint(within(t), h.create(t).id, dir, driver.CheckpointOptions{}), sandbox.Conflict)
	b, port, before := h.withState(t)
	for _, stop := range []bool{false, true} {
		if err := c.Checkpoint(within(t), b.id, filepath.Join(parent, "no", "such"), driver.CheckpointOptions{Stop: stop}); err == nil {
			t.Error("Checkpoint() into a directory that does not exist succeeded")
		}
		b.connect(t)
		before = b.wantOn(t, port, before)
	}
	wantAlone(t, dir)
	if !h.Driver.Capabilities().Isolated {
		return
	}
	b.killInit(t)
	if _, err := h.Driver.Wait(within(t), b.id); err != nil {
		t.Fatalf("Wait() = %v", err)
	}
	wantCode(t, "Checkpoint() of an ended box", c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}), sandbox.Unavailable)
	wantAlone(t, dir)
}

func testCheckpointContextsEnd(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	dir := filepath.Join(t.TempDir(), "saved")
	began := time.Now()
	if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	span := time.Since(began) + time.Millisecond
	for i := range 12 {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(span))))
		err := c.Checkpoint(ctx, b.id, dir, driver.CheckpointOptions{Stop: i%2 == 1})
		cancel()
		if err == nil {
			if i%2 == 1 {
				return // it finished before the deadline, and has stopped
			}
			wantAlone(t, dir, "saved")
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Checkpoint() = %v, want the context's error", err)
		}
		wantAlone(t, dir)
		b.connect(t)
		before = b.wantOn(t, port, before)
	}
}

func testCheckpointWhileDestroying(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, _, _ := h.withState(t)
	dir := filepath.Join(t.TempDir(), "saved")
	done := make(chan error, 1)
	go func() { done <- c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}) }()
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	if err := <-done; err == nil {
		wantAlone(t, dir, "saved") // it finished first
	} else {
		wantAlone(t, dir)
		if code := sandbox.CodeOf(err); code != sandbox.NotFound && code != sandbox.Unavailable {
			t.Errorf("Checkpoint() of a box being destroyed = %v", err)
		}
	}
}

func testRestoreRefused(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, _, _ := h.withState(t)
	parent := t.TempDir()
	good := filepath.Join(parent, "good")
	if err := c.Checkpoint(within(t), b.id, good, driver.CheckpointOptions{}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	refused := func(dir string) {
		t.Helper()
		wantCode(t, "CanRestore()", c.CanRestore(dir), sandbox.NotFound)
		spec := h.Spec()
		_, err := c.Restore(within(t), spec, dir)
		wantCode(t, "Restore()", err, sandbox.NotFound)
		if slices.Contains(h.list(within(t), t), spec.ID) {
			t.Error("a Restore() that was refused left something")
		}
	}
	refused(filepath.Join(parent, "none"))
	refused(t.TempDir())
	files, err := fs.Glob(os.DirFS(good), "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("the checkpoint holds %q, %v", files, err)
	}
	refusals := 0
	for _, missing := range files {
		dir := filepath.Join(t.TempDir(), "bad")
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, missing)); err != nil {
			t.Fatal(err)
		}
		if c.CanRestore(dir) == nil { // the checkpoint has another copy of it, or does not need it
			h.restored(t, h.Spec(), dir).wantKept(t)
			continue
		}
		refused(dir)
		refusals++
	}
	if refusals == 0 {
		t.Errorf("the checkpoint is restored without any of its files %q", files)
	}
	spec := h.Spec()
	spec.Hostname = "a b"
	_, err = c.Restore(within(t), spec, good)
	wantCode(t, "Restore() with a bad spec", err, sandbox.Invalid)
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(moved, os.DirFS(good)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(good); err != nil {
		t.Fatal(err)
	}
	h.restored(t, h.Spec(), moved).wantKept(t)
}

func testRestoreContextsEnd(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, _, _ := h.withState(t)
	dir := filepath.Join(t.TempDir(), "saved")
	if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	began := time.Now()
	h.restored(t, h.Spec(), dir)
	span := time.Since(began) + time.Millisecond
	for i := range 12 {
		spec := h.Spec()
		after := time.Duration(rand.Int64N(int64(span)))
		if i == 0 {
			after = 0 // it has ended before the call
		}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := c.Restore(ctx, spec, dir)
		cancel()
		if err == nil {
			if err := h.Driver.Destroy(within(t), spec.ID); err != nil {
				t.Errorf("Destroy() = %v", err)
			}
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Restore() = %v, want the context's error", err)
		}
		if slices.Contains(h.list(within(t), t), spec.ID) {
			t.Errorf("Restore() that ended with %v left something", err)
		}
	}
	h.restored(t, h.Spec(), dir).wantKept(t)
}
