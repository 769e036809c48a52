package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
)

// newSharing is newSupplied for workers that so many boxes share.
func newSharing(t *testing.T, boxes int) (*rig, *supplier) {
	t.Helper()
	r, s := newSupplied(t)
	r.perWorker = boxes
	r.reopen(t, r.driver()).Settle(nil)
	return r, s
}

// startedFor makes a running box of a workspace.
func (r *rig) startedFor(ctx context.Context, w sandbox.WorkspaceID, s driver.Spec) (driver.Handle, error) {
	d := r.control.Load()
	release, err := d.Stage(ctx, w, s, "")
	if err != nil {
		return nil, err
	}
	defer release()
	h, err := d.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return h, d.Start(ctx, s.ID)
}

func (r *rig) mustStartFor(t *testing.T, w sandbox.WorkspaceID, s driver.Spec) driver.Handle {
	t.Helper()
	h, err := r.startedFor(within(t), w, s)
	if err != nil {
		t.Fatalf("box of workspace %q: %v", w, err)
	}
	return h
}

// TestBoxesShareAWorker checks which boxes share a worker: boxes of a workspace with the same limits and files, as many as the setting says.
func TestBoxesShareAWorker(t *testing.T) {
	r, s := newSharing(t, 2)
	workers := map[string]string{} // of boxes
	start := func(name string, w sandbox.WorkspaceID, memory int64) sandbox.ID {
		t.Helper()
		box := spec()
		box.Resources.MemoryBytes = memory
		r.mustStartFor(t, w, box)
		workers[name] = r.driver().Of(box.ID)
		return box.ID
	}
	pool := start("pool", "", gib)
	release, err := r.control.Load().Stage(within(t), "ws_1", driver.Spec{ID: pool, RootFS: rootfs}, "") // a sandbox gets it
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	release()
	ids := []sandbox.ID{
		pool, start("first", "ws_1", gib), start("second", "ws_1", gib), start("third", "ws_1", gib), start("larger", "ws_1", 2*gib), start("other", "ws_2", gib),
	}
	on := func(name string) string { return workers[name] }
	if on("first") != on("second") {
		t.Errorf("two boxes of a workspace are on two workers: %v", workers)
	}
	for _, name := range []string{"pool", "third", "larger", "other"} {
		for other, w := range workers {
			if other != name && w == on(name) {
				t.Errorf("%s and %s share a worker", name, other)
			}
		}
	}
	if n := s.count(); n != 5 {
		t.Errorf("there are %d workers, want 5", n)
	}
	for id, want := range map[sandbox.ID]int{pool: 1, ids[1]: 2, ids[5]: 2} {
		if got := s.wanted[id].Boxes; got != want {
			t.Errorf("the worker is made for %d boxes, want %d", got, want)
		}
	}
	destroy := func(id sandbox.ID) {
		t.Helper()
		if err := r.driver().Destroy(within(t), id); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
	destroy(ids[1])
	if start("fourth", "ws_1", gib); on("fourth") != on("second") && on("fourth") != on("third") {
		t.Errorf("a box does not get the place that another has left: %v", workers)
	}
	for _, id := range append(ids[:1:1], ids[2:]...) {
		destroy(id)
	}
	eventually(t, "the workers without boxes are removed", func() error {
		if n := s.count(); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// TestBoxesAtOnceShareWorkers checks that boxes that are made at the same time wait for a worker that they share.
func TestBoxesAtOnceShareWorkers(t *testing.T) {
	r, s := newSharing(t, 4)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := r.startedFor(within(t), "ws_1", spec()); err != nil {
				t.Errorf("box: %v", err)
			}
		})
	}
	all.Wait()
	if n := s.count(); n != 2 {
		t.Errorf("8 boxes are on %d workers, want 2", n)
	}
}

// TestSharedWorkerOfACancelledCall checks that a box gets a worker although the call that would have made it for both is cancelled.
func TestSharedWorkerOfACancelledCall(t *testing.T) {
	r, s := newSharing(t, 2)
	s.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(within(t))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.startedFor(ctx, "ws_1", spec())
		first <- err
	}()
	eventually(t, "the worker is being made", func() error {
		if s.count() != 1 {
			return errors.New("there is none")
		}
		return nil
	})
	go func() {
		_, err := r.startedFor(within(t), "ws_1", spec())
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call returned %v", err)
	}
	close(s.gate)
	if err := <-second; err != nil {
		t.Errorf("the other call returned %v", err)
	}
	eventually(t, "only the worker of the box is there", func() error {
		if n := s.count(); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

func TestSharedWorkerThatIsRefused(t *testing.T) {
	r, s := newSharing(t, 3)
	s.refuse = sandbox.Errorf(sandbox.QuotaExceeded, "no quota")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := r.startedFor(within(t), "ws_1", spec()); !errors.Is(err, s.refuse) {
				t.Errorf("a box: %v, want the error of the supplier", err)
			}
		})
	}
	all.Wait()
	s.wantNone(t)
}

// TestSharedWorkerAfterAStart checks that boxes of the same workspace, and no others, get the free places of workers that the server before has made, when
// the workspaces of their boxes are known.
func TestSharedWorkerAfterAStart(t *testing.T) {
	r, s := newSharing(t, 3)
	box := spec()
	handle := r.mustStartFor(t, "ws_1", box)
	on := s.only(t).id.ID
	d := r.reopen(t, r.driver())
	if err := d.Recover(within(t), box.ID, handle); err != nil {
		t.Fatalf("Recover() = %v", err)
	}
	early := spec()
	r.mustStartFor(t, "ws_1", early)
	d.Settle(map[sandbox.ID]sandbox.WorkspaceID{box.ID: "ws_1", early.ID: "ws_1"})
	other := spec()
	r.mustStartFor(t, "ws_2", other)
	if s.wanted[early.ID].ID == "" || s.wanted[other.ID].ID == "" {
		t.Error("a box shares a worker whose workspace is not known, or is another")
	}
	for range 3 {
		r.mustStartFor(t, "ws_1", spec())
	}
	if _, boxes := d.BoxesOf(on); len(boxes) < 2 {
		t.Errorf("the worker of the server before has %d boxes, want others of the workspace", len(boxes))
	}
	if n := s.count(); n != 3 {
		t.Errorf("there are %d workers, want 3", n)
	}
}

// TestLostSharedWorker checks how boxes end that shared a worker: nobody knows which of them used the memory.
func TestLostSharedWorker(t *testing.T) {
	r, s := newSharing(t, 2)
	first, second := spec(), spec()
	r.mustStartFor(t, "ws_1", first)
	r.mustStartFor(t, "ws_1", second)
	s.lost(s.only(t).id.ID, fleet.Loss{Reason: "the Pod has ended (OOMKilled)", OOM: true})
	for _, box := range []driver.Spec{first, second} {
		exit, err := r.driver().Wait(within(t), box.ID)
		if want := (driver.Exit{Cause: sandbox.CauseWorkerLost, Lost: true, Detail: "the Pod has ended (OOMKilled)"}); exit != want || err != nil {
			t.Errorf("Wait() = %+v, %v, want %+v", exit, err, want)
		}
		if err := r.driver().Destroy(within(t), box.ID); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
	s.wantNone(t)
}
