package fleet_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// brief is a patience with which a worker counts as away as soon as its connection breaks.
const brief = time.Millisecond

// started makes a running box with so much memory, and returns its handle.
func (r *rig) started(t *testing.T, memory int64) (driver.Spec, driver.Handle) {
	t.Helper()
	s := spec()
	s.Resources.MemoryBytes = memory
	h, err := r.driver().Create(within(t), s)
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if err := r.driver().Start(within(t), s.ID); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	return s, h
}

// wantOn checks on which worker a box is.
func (r *rig) wantOn(t *testing.T, id sandbox.ID, name string) {
	t.Helper()
	if got := r.driver().Of(id); got != name {
		t.Errorf("the box is on %q, want %q", got, name)
	}
	for _, m := range r.machines {
		ids, err := fake.New(m.host).List(within(t))
		if has := slices.Contains(ids, id); err != nil || has != (m.said.Name == name) {
			t.Errorf("the host of worker %s has the box: %v, %v", m.said.Name, has, err)
		}
	}
}

// wantAnswer checks that the agent of a box answers, after its worker may have been away.
func (r *rig) wantAnswer(t *testing.T, id sandbox.ID) {
	t.Helper()
	eventually(t, "the box can be dialed", func() error {
		c, err := r.driver().Dial(within(t), id, driver.AgentPort)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// wantAway checks that a box is unavailable because its worker is away.
func (r *rig) wantAway(t *testing.T, id sandbox.ID) {
	t.Helper()
	if _, err := r.driver().Dial(within(t), id, driver.AgentPort); sandbox.CodeOf(err) != sandbox.Unavailable || !errors.Is(err, driver.ErrAway) {
		t.Errorf("Dial() of a box whose worker is away = %v, want unavailable", err)
	}
}

// leave ends the process of a worker, and waits until the control plane knows.
func (r *rig) leave(t *testing.T, m *machine) {
	t.Helper()
	m.end()
	running := 0
	for _, other := range r.machines {
		if other.stop != nil {
			running++
		}
	}
	eventually(t, "the worker is away", func() error { return wantConnected(r.control.Load(), running) })
}

func TestPlacement(t *testing.T) {
	r := newRig(t, testTimeout, 4*gib, 3*gib)
	var got []string
	for range 4 {
		s, _ := r.started(t, gib)
		name := r.driver().Of(s.ID)
		r.wantOn(t, s.ID, name)
		got = append(got, name)
	}
	// a has 4, b 3; then 3 and 3: a has fewer boxes only while it has none.
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("boxes are on %q, want %q", got, want)
	}
	small, _ := r.started(t, 128<<20)
	r.wantOn(t, small.ID, "a")
	for _, w := range r.driver().Workers() {
		want := map[string]int64{"a": 2*gib + 128<<20, "b": 2 * gib}[w.Name]
		if w.PromisedBytes != want || w.MemoryBytes == 0 || w.Cores != 4 || w.Version != "1.0" || w.Status != worker.Ready {
			t.Errorf("worker %+v, want %d promised", w, want)
		}
	}
	if err := r.driver().Destroy(within(t), small.ID); err != nil {
		t.Fatal(err)
	}
	if w := r.driver().Workers()[0]; w.PromisedBytes != 2*gib || w.Boxes != 2 {
		t.Errorf("after Destroy() %+v", w)
	}
}

// TestFull checks that the boxes of a worker get no more memory together than the limit.
func TestFull(t *testing.T) {
	r := newRig(t, testTimeout, gib, 2*gib)
	r.limit = func(memory int64) int64 { return memory }
	r.reopen(t, r.driver())
	for range 3 {
		r.started(t, gib)
	}
	_, err := r.driver().Create(within(t), spec())
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Create() without space on a worker = %v, want unavailable", err)
	}
	for _, w := range r.driver().Workers() {
		if w.PromisedBytes != w.MemoryBytes {
			t.Errorf("the worker %s with %d bytes promises %d", w.Name, w.MemoryBytes, w.PromisedBytes)
		}
	}
}

// TestAway checks that only the boxes of a worker feel that it is away.
func TestAway(t *testing.T) {
	r := newRig(t, brief, gib, gib)
	on := map[string]sandbox.ID{}
	for range 2 {
		s, _ := r.started(t, 256<<20)
		on[r.driver().Of(s.ID)] = s.ID
	}
	r.leave(t, r.machines[0])
	r.wantAway(t, on["a"])
	r.wantAnswer(t, on["b"])
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "b")
	if ids, err := r.driver().List(within(t)); err != nil || len(ids) != 2 {
		t.Errorf("List() = %v, %v, want the boxes of the other worker", ids, err)
	}
	if err := r.driver().Destroy(within(t), on["a"]); !errors.Is(err, driver.ErrAway) {
		t.Errorf("Destroy() of a box whose worker is away = %v", err)
	}
	waited := make(chan driver.Exit, 1)
	go func() {
		exit, err := r.driver().Wait(within(t), on["a"])
		if err != nil {
			t.Errorf("Wait() = %v", err)
		}
		waited <- exit
	}()
	r.machines[0].start(t)
	r.wantAnswer(t, on["a"])
	eventually(t, "the box is destroyed", func() error { return r.driver().Destroy(within(t), on["a"]) })
	if exit := <-waited; exit.Cause != sandbox.CauseDestroyed {
		t.Errorf("Wait() = %+v", exit)
	}
}

// TestStartWithoutAWorker checks that a control plane starts without one of its workers, and takes over the boxes of that worker
// when it is back.
func TestStartWithoutAWorker(t *testing.T) {
	r := newRig(t, brief, gib, gib)
	a, onA := r.started(t, 256<<20)
	b, onB := r.started(t, 256<<20)
	other, onOther := r.started(t, 256<<20)
	r.wantOn(t, other.ID, "a")
	r.machines[0].end()
	r.reopen(t, r.driver())
	for id, h := range map[sandbox.ID]driver.Handle{a.ID: onA, b.ID: onB, other.ID: onOther} {
		if err := r.driver().Recover(within(t), id, h); err != nil {
			t.Fatalf("Recover() = %v", err)
		}
	}
	r.wantAway(t, a.ID)
	r.wantAnswer(t, b.ID)
	r.machines[0].host.End(other.ID, driver.Exit{Cause: sandbox.CauseExited})
	waited := make(chan driver.Exit, 1)
	go func() {
		exit, _ := r.driver().Wait(within(t), other.ID)
		waited <- exit
	}()
	if w := r.driver().Workers()[0]; w.Name != "a" || w.Connected || w.PromisedBytes != 512<<20 || w.Boxes != 2 {
		t.Errorf("the worker that is away is %+v", w)
	}
	r.machines[0].start(t)
	r.wantAnswer(t, a.ID)
	if exit := <-waited; !exit.Lost {
		t.Errorf("Wait() of a box that ended meanwhile = %+v, want lost", exit)
	}
}

// TestHandlesOfOneWorker checks that boxes of a server which had one worker are taken over on the worker that joined first.
func TestHandlesOfOneWorker(t *testing.T) {
	r := newRig(t, testTimeout, gib, gib)
	s := spec()
	host := fake.New(r.machines[0].host)
	h, err := host.Create(within(t), s)
	if err == nil {
		err = host.Start(within(t), s.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.driver().Recover(within(t), s.ID, h); err != nil {
		t.Fatalf("Recover() = %v", err)
	}
	r.wantOn(t, s.ID, "a")
	r.wantAnswer(t, s.ID)
}

// pause saves a box in a checkpoint and destroys it.
func (r *rig) pause(t *testing.T, id sandbox.ID) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "saved")
	if err := r.driver().Checkpoint(within(t), id, dir, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	if err := r.driver().Destroy(within(t), id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	return dir
}

// TestRestoreWhereItIsPossible checks that a box is restored on a worker that can, and that no other worker is a reason to give its memory up.
func TestRestoreWhereItIsPossible(t *testing.T) {
	r := newRig(t, brief, gib, 8*gib)
	if _, err := r.driver().Use(within(t), "b", worker.Draining); err != nil {
		t.Fatal(err)
	}
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	dir := r.pause(t, s.ID)
	if _, err := r.driver().Use(within(t), "b", worker.Ready); err != nil {
		t.Fatal(err)
	}
	if err := r.driver().CanRestore(dir); err != nil {
		t.Errorf("CanRestore() = %v", err)
	}
	if _, err := r.driver().Restore(within(t), s, dir); err != nil {
		t.Fatalf("Restore() = %v", err)
	}
	r.wantOn(t, s.ID, "a") // with less memory, but with the processor
	dir = r.pause(t, s.ID)
	r.leave(t, r.machines[0])
	err := r.driver().CanRestore(dir)
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("CanRestore() while the worker that can is away = %v, want unavailable", err)
	}
	_, err = r.driver().Restore(within(t), s, dir)
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Restore() while the worker that can is away = %v, want unavailable", err)
	}
	r.machines[0].start(t)
	eventually(t, "the box is restored", func() error {
		_, err := r.driver().Restore(within(t), s, dir)
		return err
	})
	r.wantOn(t, s.ID, "a")
}

// TestRestoreElsewhere checks that a box moves to another worker, and not to a worker that is being drained.
func TestRestoreElsewhere(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	dir := r.pause(t, s.ID)
	if w, err := r.driver().Use(within(t), "a", worker.Draining); err != nil || w.Status != worker.Draining {
		t.Fatalf("Use() = %+v, %v", w, err)
	}
	r.machines[1].saved[token(dir)] = true // its processor suits
	if _, err := r.driver().Restore(within(t), s, dir); err != nil {
		t.Fatalf("Restore() = %v", err)
	}
	r.wantOn(t, s.ID, "b")
	r.wantAnswer(t, s.ID)
	r.reopen(t, r.driver())
	other, _ := r.started(t, 256<<20)
	r.wantOn(t, other.ID, "b") // also after a restart
}

// TestRestoreBesideASilentWorker checks that a restore does not wait for the answer of a worker if another can restore the box, although the
// silent worker has more memory.
func TestRestoreBesideASilentWorker(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	dir := r.pause(t, s.ID)
	silent := make(chan struct{})
	r.machines[0].mu.Lock()
	r.machines[0].silent = silent
	r.machines[0].mu.Unlock()
	r.machines[1].saved[token(dir)] = true // b can restore the memory, and c cannot
	restored := make(chan error, 1)
	go func() {
		_, err := r.driver().Restore(within(t), s, dir)
		restored <- err
	}()
	select {
	case err := <-restored:
		close(silent)
		if err != nil {
			t.Fatalf("Restore() = %v", err)
		}
	case <-time.After(15 * time.Second): // a worker has 30 seconds for an answer
		close(silent)
		t.Errorf("Restore() waits for the worker that does not answer: %v", <-restored)
	}
	r.wantOn(t, s.ID, "b")
	r.wantAnswer(t, s.ID)
}

// TestObsoleteBox checks that a box is destroyed on a worker that comes back when it is meanwhile on another.
func TestObsoleteBox(t *testing.T) {
	r := newRig(t, brief, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	kept, h := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	r.machines[0].end()
	r.reopen(t, r.driver()) // which knows nothing of the box
	if err := r.driver().Recover(within(t), kept.ID, h); err != nil {
		t.Fatal(err)
	}
	if err := r.driver().Destroy(within(t), s.ID); err != nil {
		t.Errorf("Destroy() of a box that no connected worker has = %v", err)
	}
	if _, err := r.driver().Create(within(t), s); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	r.machines[0].start(t)
	eventually(t, "the obsolete box is gone", func() error {
		if ids, err := fake.New(r.machines[0].host).List(within(t)); err != nil || slices.Contains(ids, s.ID) {
			return errors.New("the first worker has it")
		}
		return nil
	})
	r.wantOn(t, s.ID, "b")
	r.wantAnswer(t, kept.ID)
}

// TestRemove checks that a worker is removed only when that loses no box, or by force, and does not come back.
func TestRemove(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib)
	s, h := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	if _, err := r.driver().Remove(within(t), "a", false); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Remove() with a box = %v, want conflict", err)
	}
	if _, err := r.driver().Remove(within(t), "c", false); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Remove() of a worker that is not there = %v, want not found", err)
	}
	waits := make(chan struct{})
	r.machines[0].host.SetFaults(fake.Faults{Wait: func(ctx context.Context, _ sandbox.ID) error {
		close(waits)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	waited := make(chan driver.Exit, 1)
	go func() {
		exit, err := r.driver().Wait(within(t), s.ID)
		if err != nil {
			t.Errorf("Wait() = %v", err)
		}
		waited <- exit
	}()
	<-waits
	if _, err := r.driver().Remove(within(t), "a", true); err != nil {
		t.Errorf("Remove() by force = %v", err)
	}
	if exit := <-waited; !exit.Lost {
		t.Errorf("Wait() = %+v, want lost", exit)
	}
	if ids, err := fake.New(r.machines[0].host).List(within(t)); err != nil || len(ids) != 0 {
		t.Errorf("on the worker that was removed: %v, %v, want no box", ids, err)
	}
	if err := r.driver().Destroy(within(t), s.ID); err != nil {
		t.Errorf("Destroy() of a box whose worker was removed = %v", err)
	}
	r.wantRefused(t, r.machines[0])
	if _, err := r.driver().Remove(within(t), "b", false); err != nil {
		t.Errorf("Remove() of a worker without boxes = %v", err)
	}
	if _, err := r.driver().Create(within(t), spec()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Create() without a worker = %v, want unavailable", err)
	}
	if list := r.driver().Workers(); len(list) != 0 {
		t.Errorf("Workers() = %+v", list)
	}
	old := r.driver()
	r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := r.driver().Recover(within(t), s.ID, h); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Recover() of a box whose worker was removed = %v, want not found", err)
	}
}

// TestIdentity checks that a worker with the id of another is refused, and that names are unique.
func TestIdentity(t *testing.T) {
	r := newRig(t, testTimeout, gib)
	if err := r.driver().Check(worker.Identity{ID: r.machines[0].id.ID, Key: "another"}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Check() of a worker with another key = %v, want conflict", err)
	}
	second := r.add(t, gib)
	second.said.Name = "a"
	second.start(t)
	eventually(t, "both are connected", func() error { return wantConnected(r.control.Load(), 2) })
	if list := r.driver().Workers(); list[0].Name != "a" || list[1].Name != "a-2" {
		t.Errorf("names %q and %q, want a and a-2", list[0].Name, list[1].Name)
	}
}

// TestNewWorkerDecidesNothing checks that a worker which the server does not know does not join before a worker that it knows is connected:
// the known workers decide about the capabilities.
func TestNewWorkerDecidesNothing(t *testing.T) {
	r := newRig(t, brief, gib)
	r.machines[0].end()
	old := r.driver()
	d := r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	refused := make(chan error, 1)
	stranger := r.add(t, gib)
	stranger.refused = func(err error) {
		select {
		case refused <- err:
		default:
		}
	}
	stranger.start(t)
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), "one of the workers that the server knows") {
			t.Errorf("Attach() of a worker that is not known = %v", err)
		}
	case <-within(t).Done():
		t.Fatal("a worker that is not known is not refused")
	}
	if list := d.Workers(); len(list) != 1 || list[0].Connected {
		t.Errorf("Workers() = %+v", list)
	}
	r.machines[0].start(t)
	eventually(t, "both are connected", func() error { return wantConnected(d, 2) })
}

// TestDatabaseStandsStill checks that a known worker connects while nothing can be recorded, and that it is not removed then.
func TestDatabaseStandsStill(t *testing.T) {
	r := newRig(t, testTimeout, gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	r.rows.fail(errors.New("the disk is full"))
	r.leave(t, r.machines[0])
	r.machines[0].start(t)
	eventually(t, "both are connected", func() error { return wantConnected(r.control.Load(), 2) })
	r.wantAnswer(t, s.ID)
	if _, err := r.driver().Remove(within(t), "a", true); err == nil {
		t.Error("Remove() succeeds without a record")
	}
	r.wantAnswer(t, s.ID)
	r.wantOn(t, s.ID, "a")
	r.rows.fail(nil)
	if _, err := r.driver().Remove(within(t), "a", true); err != nil {
		t.Errorf("Remove() = %v", err)
	}
}

// TestHungWorker checks that a worker that does not answer keeps nobody from the checkpoints that others can restore.
func TestHungWorker(t *testing.T) {
	r := newRig(t, testTimeout, gib, 8*gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "b")
	dir := r.pause(t, s.ID)
	release := make(chan struct{})
	defer close(release)
	r.machines[0].host.SetFaults(fake.Faults{CanRestore: func(ctx context.Context, _ sandbox.ID) error {
		<-release
		return nil
	}})
	if err := r.driver().CanRestore(dir); err != nil {
		t.Errorf("CanRestore() = %v", err)
	}
}

// TestReach checks that a box is out of reach as soon as its worker is away, and that others are not.
func TestReach(t *testing.T) {
	r := newRig(t, testTimeout, 8*gib, gib)
	s, _ := r.started(t, 256<<20)
	r.wantOn(t, s.ID, "a")
	if err := r.driver().Reach(s.ID); err != nil {
		t.Errorf("Reach() = %v", err)
	}
	r.leave(t, r.machines[0])
	if err := r.driver().Reach(s.ID); !errors.Is(err, driver.ErrAway) {
		t.Errorf("Reach() while the worker is away = %v", err)
	}
	other, _ := r.started(t, 256<<20)
	if err := r.driver().Reach(other.ID); err != nil {
		t.Errorf("Reach() of a box on the other worker = %v", err)
	}
	r.machines[0].start(t)
	eventually(t, "the box can be reached", func() error { return r.driver().Reach(s.ID) })
}
