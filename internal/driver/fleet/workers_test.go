package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// TestChangedWorkerDecidesNothing checks that a known worker whose features have changed is not the first after a start, while
// others may come.
func TestChangedWorkerDecidesNothing(t *testing.T) {
	r := newRig(t, brief, gib, gib)
	changed, same := r.machines[0], r.machines[1]
	eventually(t, "the features are recorded", func() error {
		for _, w := range r.driver().Workers() {
			if w.Features == "" || strings.Contains(w.Features, "Memory") {
				return errors.New(w.Features)
			}
		}
		return nil
	})
	changed.end()
	same.end()
	old := r.driver()
	r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	refused := make(chan error, 1)
	changed.refused = func(err error) {
		select {
		case refused <- err:
		default:
		}
	}
	wantRefused := func(why string) {
		t.Helper()
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), why) {
				t.Errorf("Attach() = %v, want %q", err, why)
			}
		case <-within(t).Done():
			t.Fatal("the worker is not refused")
		}
	}
	changed.limits = true
	changed.start(t)
	wantRefused("could before")
	same.start(t)
	eventually(t, "the other worker is connected", func() error { return wantConnected(r.control.Load(), 1) })
	if c := r.driver().Capabilities(); c.Memory {
		t.Errorf("Capabilities() = %+v", c)
	}
	<-refused // perhaps of before
	wantRefused("must have the same features")

	same.end()
	old = r.driver()
	d := r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := d.Ready(within(t), brief); err != nil { // in vain it waits for the other worker
		t.Errorf("Ready() = %v", err)
	}
	if c := d.Capabilities(); !c.Memory {
		t.Errorf("Capabilities() = %+v, want the capabilities of the only worker that connected", c)
	}
}

// TestFailingWorker checks that a worker that fails costs lists of boxes, and measurements of disk use, only its own.
func TestFailingWorker(t *testing.T) {
	r := newRig(t, testTimeout)
	for i, memory := range []int64{8 * gib, 4 * gib} {
		m := r.add(t, memory)
		m.meters = true
		m.start(t)
		eventually(t, "the worker is connected", func() error { return wantConnected(r.control.Load(), i+1) })
	}
	a, _ := r.started(t, 4*gib)
	r.wantOn(t, a.ID, "a")
	b, _ := r.started(t, gib)
	r.wantOn(t, b.ID, "b")
	fails := fake.Faults{List: fake.Fail(errors.New("the disk is broken"))}
	r.machines[0].host.SetFaults(fails)
	if ids, err := r.driver().List(within(t)); err != nil || slices.Contains(ids, a.ID) || !slices.Contains(ids, b.ID) {
		t.Errorf("List() = %v, %v, want the boxes of the other worker", ids, err)
	}
	if use, err := r.driver().DiskUse(); err != nil || len(use) != 1 || use[b.ID] != 1 {
		t.Errorf("DiskUse() = %v, %v, want only the box of the other worker", use, err)
	}
	r.machines[1].host.SetFaults(fails)
	if use, err := r.driver().DiskUse(); err == nil {
		t.Errorf("DiskUse() = %v although all workers fail", use)
	}
	if ids, err := r.driver().List(within(t)); err == nil {
		t.Errorf("List() = %v although all workers fail", ids)
	}
}

// TestObsoleteBoxOfConnectedWorker checks that a list of boxes destroys a box on a connected worker that is meanwhile on another.
func TestObsoleteBoxOfConnectedWorker(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	if _, err := fake.New(r.machines[1].host).Create(within(t), s); err != nil {
		t.Fatal(err)
	}
	if ids, err := r.driver().List(within(t)); err != nil || !slices.Equal(ids, []sandbox.ID{s.ID}) {
		t.Errorf("List() = %v, %v", ids, err)
	}
	r.wantOn(t, s.ID, "a")
	r.wantAnswer(t, s.ID)
}

// TestTakesSandbox checks which boxes may get a sandbox.
func TestTakesSandbox(t *testing.T) {
	r := newRig(t, brief, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	want := func(takes bool, when string) {
		t.Helper()
		eventually(t, when, func() error {
			if r.driver().TakesSandbox(s.ID) != takes {
				return errors.New("it has the other answer")
			}
			return nil
		})
	}
	want(true, "at first")
	for _, status := range []worker.Status{worker.Draining, worker.Ready} {
		if _, err := r.driver().Use(within(t), "a", status); err != nil {
			t.Fatal(err)
		}
		want(status == worker.Ready, string(status))
	}
	r.leave(t, r.machines[0])
	want(false, "away for longer than calls wait")
	r.machines[0].start(t)
	want(true, "back")
	if r.driver().TakesSandbox(sandbox.NewID()) {
		t.Error("a box that does not exist may get a sandbox")
	}
}

// TestLeave checks that a worker that is being ended gets no boxes, also over another connection, until it connects again after that.
func TestLeave(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	w, err := r.driver().Worker("a")
	if err != nil {
		t.Fatal(err)
	}
	want := func(takes bool, when string) {
		t.Helper()
		if got := r.driver().TakesSandbox(s.ID); got != takes {
			t.Errorf("%s: TakesSandbox() = %v", when, got)
		}
	}
	reconnect := func() {
		t.Helper()
		r.leave(t, r.machines[0])
		r.machines[0].start(t)
		eventually(t, "the worker is back", func() error { return wantConnected(r.control.Load(), 2) })
	}
	done := r.driver().Leave(w.ID)
	if name, boxes := r.driver().BoxesOf(w.ID); name != "a" || !slices.Equal(boxes, []sandbox.ID{s.ID}) {
		t.Errorf("BoxesOf() = %q, %v", name, boxes)
	}
	want(false, "leaving")
	other, _ := r.started(t, 256<<20)
	r.wantOn(t, other.ID, "b")
	reconnect()
	want(false, "leaving over another connection")
	done(true)
	want(false, "gone")
	reconnect()
	want(true, "back")
	r.driver().Leave(w.ID)(false) // the worker did not wait, and may be back
	want(true, "after a call that was cut off")
	r.driver().Leave("unknown")(true)
	if _, boxes := r.driver().BoxesOf("unknown"); len(boxes) != 0 {
		t.Errorf("BoxesOf() an unknown worker = %v", boxes)
	}
}

// TestShortAbsence checks that boxes of a worker whose connection broke a moment ago are not given up.
func TestShortAbsence(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib)
	s, _ := r.started(t, 256<<20)
	r.leave(t, r.machines[0])
	if !r.driver().TakesSandbox(s.ID) {
		t.Error("the box gets no sandbox any more")
	}
}

// wantRefused checks that a worker that was removed has no box, and may not connect.
func (r *rig) wantRefused(t *testing.T, m *machine) {
	t.Helper()
	eventually(t, "the worker is refused, without boxes", func() error {
		ids, err := fake.New(m.host).List(within(t))
		if err != nil || len(ids) > 0 {
			return fmt.Errorf("it has the boxes %v, %w", ids, err)
		}
		if err := r.driver().Check(m.id); sandbox.CodeOf(err) != sandbox.Conflict {
			return fmt.Errorf("Check() = %w, want conflict", err)
		}
		return nil
	})
}

// TestRemovedWorkerComesBack checks that the boxes of a worker which was away when it was removed are destroyed when it connects, also to
// the next server.
func TestRemovedWorkerComesBack(t *testing.T) {
	r := newRig(t, brief, 8*gib, gib, 4*gib)
	for _, m := range []*machine{r.machines[0], r.machines[2]} {
		s, _ := r.started(t, 2*gib)
		r.wantOn(t, s.ID, m.said.Name)
		if m == r.machines[0] {
			r.started(t, 4*gib) // so that the next is on the other
		}
	}
	for _, name := range []string{"a", "c"} {
		m := r.machines[name[0]-'a']
		m.end()
		eventually(t, "the worker is away", func() error {
			if w, err := r.driver().Worker(name); err != nil || w.Connected {
				return fmt.Errorf("%+v, %w", w, err)
			}
			return nil
		})
		if _, err := r.driver().Remove(within(t), name, true); err != nil {
			t.Fatal(err)
		}
		if ids, err := fake.New(m.host).List(within(t)); err != nil || len(ids) == 0 {
			t.Fatalf("the worker %s has the boxes %v, %v", name, ids, err)
		}
	}
	r.machines[0].start(t)
	r.wantRefused(t, r.machines[0])
	r.machines[0].end()
	r.reopen(t, r.driver())
	r.machines[2].start(t)
	r.wantRefused(t, r.machines[2])
	if list := r.driver().Workers(); len(list) != 1 {
		t.Errorf("Workers() = %+v", list)
	}
}

// TestRemovedWorkerThatKeepsABox checks that a removed worker whose box cannot be destroyed does not connect again at once.
func TestRemovedWorkerThatKeepsABox(t *testing.T) {
	r := newRig(t, brief, gib)
	r.started(t, gib/4)
	m := r.machines[0]
	m.end()
	if _, err := r.driver().Remove(within(t), "a", true); err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	m.host.SetFaults(fake.Faults{Destroy: func(context.Context, sandbox.ID) error {
		tries.Add(1)
		return errors.New("the disk is full")
	}})
	defer m.host.SetFaults(fake.Faults{})
	m.start(t)
	eventually(t, "the worker is refused after a try", func() error {
		if err := r.driver().Check(m.id); sandbox.CodeOf(err) != sandbox.Conflict || tries.Load() == 0 {
			return fmt.Errorf("Check() = %w after %d tries, want conflict after a try", err, tries.Load())
		}
		return nil
	})
	m.end()
	if n := tries.Load(); n != 1 {
		t.Errorf("the server tried to destroy the box %d times, want once", n)
	}
}

// TestChangeBesideRemoval checks that a change of a worker which is being removed does not bring it back.
func TestChangeBesideRemoval(t *testing.T) {
	r := newRig(t, testTimeout, gib, gib)
	saving, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.rows.before(func(w worker.Record) {
		if w.Status == worker.Gone {
			once.Do(func() { close(saving) })
			<-release
		}
	})
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := r.driver().Remove(within(t), "a", true); err != nil {
			t.Errorf("Remove() = %v", err)
		}
	})
	<-saving
	both.Go(func() {
		if _, err := r.driver().Use(within(t), "a", worker.Ready); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Use() of a worker that is being removed = %v, want not found", err)
		}
	})
	for range 10_000 {
		runtime.Gosched() // until the second waits for the first, perhaps
	}
	close(release)
	both.Wait()
	if list := r.driver().Workers(); len(list) != 1 || list[0].Name != "b" {
		t.Errorf("Workers() = %+v", list)
	}
}
