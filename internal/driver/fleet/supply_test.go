package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// supplier makes a machine for each box.
type supplier struct {
	t   *testing.T
	rig *rig

	mu       sync.Mutex
	machines map[string]*machine         // guarded by mu; of the workers that were not released
	kept     []string                    // guarded by mu; the argument of the last Start
	lost     func(string, fleet.Loss)    // guarded by mu
	refuse   error                       // guarded by mu; of Supply after the worker has connected
	saved    map[string]bool             // guarded by mu; the memory that the next machines can restore, by token
	ended    []*machine                  // guarded by mu
	wanted   map[sandbox.ID]fleet.Wanted // guarded by mu
	claimed  []string                    // guarded by mu; workers and workspaces
	gives    int                         // guarded by mu; workers that are to give way
	crowded  chan struct{}
	gate     chan struct{}  // Supply waits until it is closed, if it is set
	stops    sync.WaitGroup // of released machines
}

func (s *supplier) Start(_ context.Context, keep []string, lost func(string, fleet.Loss)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.lost = keep, lost
	return nil
}

func (s *supplier) Supply(ctx context.Context, w fleet.Wanted, connected <-chan struct{}) error {
	s.mu.Lock()
	m := &machine{rig: s.rig, host: fake.NewHost(s.t.TempDir()), dir: s.t.TempDir(), saved: maps.Clone(s.saved)}
	m.id.ID, m.id.Key, m.said.Name = w.ID, "key", strings.ToLower(w.ID)
	s.machines[w.ID], s.wanted[w.Box.ID] = m, w
	refuse := s.refuse
	s.mu.Unlock()
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	m.start(s.t)
	select {
	case <-connected:
		return refuse
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *supplier) Claim(id string, w sandbox.WorkspaceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = append(s.claimed, id+" "+string(w))
}

func (s *supplier) Crowded() <-chan struct{} { return s.crowded }

func (s *supplier) GiveWay(ids []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gives == 0 || len(ids) == 0 {
		return ""
	}
	s.gives--
	return ids[0]
}

func (s *supplier) Release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id]; m != nil {
		delete(s.machines, id)
		s.ended = append(s.ended, m)
		s.stops.Go(m.end)
	}
}

func (s *supplier) Close() {}

// count returns the number of machines.
func (s *supplier) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.machines)
}

// only returns the only machine.
func (s *supplier) only(t *testing.T) *machine {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.machines) != 1 {
		t.Fatalf("there are %d machines, want 1", len(s.machines))
	}
	for _, m := range s.machines {
		return m
	}
	return nil
}

// newSupplied connects a control plane and a worker that is not supplied.
func newSupplied(t *testing.T) (*rig, *supplier) {
	t.Helper()
	s := &supplier{t: t, machines: map[string]*machine{}, wanted: map[sandbox.ID]fleet.Wanted{}, saved: map[string]bool{}}
	r := &rig{patience: testTimeout, supplier: s}
	s.rig = r
	r.open(t).Settle(nil)
	t.Cleanup(func() {
		r.machines[0].end()
		if err := r.control.Load().Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		s.stops.Wait()
		for _, m := range append(slices.Collect(maps.Values(s.machines)), append(s.ended, r.machines[0])...) {
			m.end()
			if err := m.host.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		}
	})
	r.add(t, gib).start(t)
	eventually(t, "the worker is connected", func() error { return wantConnected(r.control.Load(), 1) })
	return r, s
}

// wantNone waits until no worker of a box remains.
func (s *supplier) wantNone(t *testing.T) {
	t.Helper()
	eventually(t, "nothing remains", func() error {
		records, err := s.rig.rows.List(t.Context())
		if n := len(s.rig.driver().Workers()); n != 1 || s.count() != 0 || len(records) != 1 {
			return fmt.Errorf("there are %d workers, %d machines and %d records", n, s.count(), len(records))
		}
		return err
	})
}

// bare is a driver that can do what any driver can.
type bare struct{ driver.Driver }

func (b bare) Capabilities() driver.Capabilities {
	c := b.Driver.Capabilities()
	c.Checkpoint, c.Snapshot, c.Furnish, c.Network = false, false, false, false
	return c
}

// TestContractSupplied runs the contract on boxes that have workers of their own, without checkpoints: fake memory stays on its machine.
func TestContractSupplied(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		r, _ := newSupplied(t)
		return drivertest.Env{
			Driver: bare{r.driver()}, Spec: spec, Bulk: bulk,
			Reopen: func(t *testing.T, old driver.Driver) driver.Driver {
				eventually(t, "the workers of boxes that were destroyed are removed", func() error {
					records, err := r.rows.List(t.Context())
					if n := len(r.driver().Workers()); n != len(records) {
						return fmt.Errorf("there are %d workers and %d records", n, len(records))
					}
					return err
				})
				return bare{r.reopen(t, old)}
			},
		}
	})
}

func TestBoxHasAWorkerOfItsOwn(t *testing.T) {
	r, s := newSupplied(t)
	first, _ := r.started(t, gib) // more than the worker that was not supplied has beside the second
	second, _ := r.started(t, gib)
	for _, box := range []driver.Spec{first, second} {
		m := s.machines[s.wanted[box.ID].ID]
		ids, err := fake.New(m.host).List(within(t))
		if err != nil || !slices.Equal(ids, []sandbox.ID{box.ID}) {
			t.Errorf("the worker of box %s has %v, %v", box.ID, ids, err)
		}
		r.wantAnswer(t, box.ID)
		if !r.driver().TakesSandbox(box.ID) { // as a box of the pool must
			t.Errorf("box %s gets no sandbox", box.ID)
		}
	}
	for _, box := range []driver.Spec{first, second} {
		if err := r.driver().Destroy(within(t), box.ID); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
	s.wantNone(t)
}

// TestCreateEndsWhileItsWorkerJoins checks that nothing remains of a worker whose record is being written when the create of its box ends.
func TestCreateEndsWhileItsWorkerJoins(t *testing.T) {
	r, s := newSupplied(t)
	saving, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.rows.before(func(w worker.Record) {
		if worker.Supplied(w.ID) {
			once.Do(func() { close(saving) })
			<-release
		}
	})
	ctx, cancel := context.WithCancel(within(t))
	created := make(chan error, 1)
	go func() {
		_, err := r.driver().Create(ctx, spec())
		created <- err
	}()
	<-saving
	cancel()
	if err := <-created; !errors.Is(err, context.Canceled) {
		t.Errorf("Create() = %v, want that it was cancelled", err)
	}
	eventually(t, "the worker is released", func() error {
		if n := s.count(); n != 0 {
			return fmt.Errorf("there are %d machines", n)
		}
		return nil
	})
	close(release)
	s.stops.Wait() // its connection has ended
	s.wantNone(t)
}

// TestWorkerLostBeforeItsBox checks that a box whose worker is lost before the box is made is not made on another worker, and says why.
func TestWorkerLostBeforeItsBox(t *testing.T) {
	r, s := newSupplied(t)
	box := spec()
	release, err := r.driver().Stage(within(t), "", box, "")
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	s.lost(s.only(t).id.ID, evicted)
	_, err = r.control.Load().Create(within(t), box)
	if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "the Pod was evicted") {
		t.Errorf("Create() = %v, want the reason why the worker was lost", err)
	}
	s.only(t) // no other was made
	release()
	s.wantNone(t)
	for range 2 { // another worker is made, also if the box was not destroyed
		if _, err := r.driver().Create(within(t), box); err != nil {
			t.Fatalf("Create() = %v", err)
		}
		s.lost(s.wanted[box.ID].ID, evicted)
	}
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	s.wantNone(t)
}

// TestBoxOfThePool checks that the root filesystem of a box comes before its sandbox does, and that the supplier learns the workspace of the sandbox.
func TestBoxOfThePool(t *testing.T) {
	r, s := newSupplied(t)
	d := r.control.Load()
	if err := d.Bring(within(t), sandbox.NewID(), rootfs); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Bring() = %v without a box, want not found", err)
	}
	if n := s.count(); n != 0 {
		t.Errorf("there are %d machines without a box", n)
	}
	box := spec()
	box.RootFS = ""
	if _, err := d.Create(within(t), box); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if got := s.wanted[box.ID].Files; got != bringMax {
		t.Errorf("the worker of a blank box has space for %d bytes of files, want %d", got, bringMax)
	}
	files := func() []string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(s.only(t).dir, "*", "images", "*.erofs"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := files(); len(list) != 0 {
		t.Fatalf("the worker has %v before it needs anything", list)
	}
	if err := d.Bring(within(t), box.ID, rootfs); err != nil {
		t.Errorf("Bring() = %v", err)
	}
	if list := files(); len(list) != 1 {
		t.Errorf("the worker has %v, want the root filesystem", list)
	}
	box.RootFS = rootfs
	release, err := d.Stage(within(t), "ws_1", box, "")
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	release()
	if want := s.only(t).id.ID + " ws_1"; len(s.claimed) != 1 || s.claimed[0] != want {
		t.Errorf("claimed are %q, want %q", s.claimed, want)
	}
	if err := d.Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	s.wantNone(t)
}

// TestPoolGivesWayToSuppliedWorkers checks which box of the pool is to be destroyed when the supplier has no place: none that a caller is about to use.
func TestPoolGivesWayToSuppliedWorkers(t *testing.T) {
	r, s := newSupplied(t)
	d := r.control.Load()
	first, _ := r.started(t, gib)
	second, _ := r.started(t, gib)
	candidates := []sandbox.ID{sandbox.NewID(), first.ID, second.ID}
	if got := d.GiveWay(candidates); got != "" {
		t.Errorf("GiveWay() = %q, want none while nobody waits", got)
	}
	s.gives = 2
	release, err := d.Stage(within(t), "ws_1", first, "") // a sandbox takes it
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	if got := d.GiveWay(candidates); got != second.ID {
		t.Errorf("GiveWay() = %q, want the box that no caller holds, %s", got, second.ID)
	}
	release()
	if got := d.GiveWay(candidates); got != first.ID {
		t.Errorf("GiveWay() = %q, want the first box, %s", got, first.ID)
	}
	for _, box := range []driver.Spec{first, second} {
		if err := d.Destroy(within(t), box.ID); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
	s.wantNone(t)
}

// TestMayFurnishWithoutASupplier checks that blank boxes on workers that stay get any file.
func TestMayFurnishWithoutASupplier(t *testing.T) {
	if r := newRig(t, brief, gib); !r.driver().MayFurnish(rootfs) {
		t.Error("blank boxes get no files, although their workers have stores of files")
	}
}

// TestFilesOfThePoolWithASupplier checks that files without a box are sent to no worker: only workers without boxes could have them.
func TestFilesOfThePoolWithASupplier(t *testing.T) {
	r, _ := newSupplied(t)
	release, err := r.control.Load().Stage(within(t), "", driver.Spec{RootFS: rootfs}, "")
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	defer release()
	list, err := filepath.Glob(filepath.Join(r.machines[0].dir, "*", "images", "*.erofs"))
	if err != nil || len(list) != 0 {
		t.Errorf("the worker without boxes has %v, %v", list, err)
	}
}

// TestSpaceForFiles checks that a worker has space for the files of its box, and that a blank box gets none for which its worker has no space.
func TestSpaceForFiles(t *testing.T) {
	r, s := newSupplied(t)
	box, _ := r.started(t, gib)
	info, err := os.Stat(rootfs)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.wanted[box.ID].Files; got != info.Size() {
		t.Errorf("the worker has space for %d bytes of files, want %d", got, info.Size())
	}
	if r.driver().MayFurnish(rootfs) {
		t.Error("blank boxes get files for which their workers have no space")
	}
	if !r.driver().MayFurnish(rootfs + ".gone") {
		t.Error("the caller does not learn at the Stage what is wrong with a file")
	}
	r.furnishMax = info.Size()
	if !r.reopen(t, r.driver()).MayFurnish(rootfs) {
		t.Error("blank boxes get no files although their workers have space")
	}
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
}

func TestFailedSupply(t *testing.T) {
	r, s := newSupplied(t)
	s.refuse = sandbox.Errorf(sandbox.QuotaExceeded, "no quota")
	if _, err := r.driver().Create(within(t), spec()); !errors.Is(err, s.refuse) {
		t.Errorf("Create() = %v, want the error of the supplier", err)
	}
	s.wantNone(t)
}

// TestSuppliedWorkerThatCannotRestore checks that a box keeps its checkpoint if the machine of its worker has another processor.
func TestSuppliedWorkerThatCannotRestore(t *testing.T) {
	r, s := newSupplied(t)
	box, _ := r.started(t, gib)
	dir := r.pause(t, box.ID)
	s.wantNone(t)
	if _, err := r.driver().Stage(within(t), "", box, dir); sandbox.CodeOf(err) != sandbox.Unavailable || !errors.Is(err, driver.ErrAway) {
		t.Errorf("Stage() = %v, want that another node may", err)
	}
	s.wantNone(t)
	s.saved = map[string]bool{token(dir): true}
	release, err := r.driver().Stage(within(t), "", box, dir)
	if err != nil {
		t.Fatalf("Stage() where the memory can be restored = %v", err)
	}
	// A worker of a box takes no others, so it is not asked.
	if err := r.driver().CanRestore(dir); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("CanRestore() = %v, want that no worker can", err)
	}
	release()
	s.wantNone(t)
}

// evicted is the loss of a worker whose Pod was evicted.
var evicted = fleet.Loss{Reason: "the Pod was evicted"}

func TestLostSuppliedWorker(t *testing.T) {
	testLostSuppliedWorker(t, evicted, driver.Exit{Cause: sandbox.CauseWorkerLost, Lost: true, Detail: "the Pod was evicted"})
}

func TestSuppliedWorkerWithoutMemory(t *testing.T) {
	testLostSuppliedWorker(t, fleet.Loss{Reason: "the Pod has ended", OOM: true}, driver.Exit{Cause: sandbox.CauseOOM, Detail: "the Pod has ended"})
}

func testLostSuppliedWorker(t *testing.T, how fleet.Loss, want driver.Exit) {
	r, s := newSupplied(t)
	box, handle := r.started(t, gib)
	m := s.only(t)
	ended := make(chan driver.Exit, 1)
	go func() {
		exit, err := r.driver().Wait(within(t), box.ID)
		if err != nil {
			t.Errorf("Wait() = %v", err)
		}
		ended <- exit
	}()
	s.lost(m.id.ID, how)
	if exit := <-ended; exit != want {
		t.Errorf("Wait() = %+v, want %+v", exit, want)
	}
	if exit, err := r.driver().Wait(within(t), box.ID); exit != want {
		t.Errorf("Wait() = %+v, %v afterwards, want %+v", exit, err, want)
	}
	var known driver.EndedError
	if err := r.driver().Recover(within(t), box.ID, handle); sandbox.CodeOf(err) != sandbox.NotFound || !errors.As(err, &known) || known.Exit != want {
		t.Errorf("Recover() = %v, want not found with %+v", err, want)
	}
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	s.wantNone(t)
}

// TestSuppliedWorkersAfterAStart checks that a start keeps a worker with a box, and removes a worker without a box.
func TestSuppliedWorkersAfterAStart(t *testing.T) {
	r, s := newSupplied(t)
	box, handle := r.started(t, gib)
	kept := s.only(t)
	r.started(t, gib) // the next control plane does not know this box
	old := r.control.Load()
	r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	eventually(t, "the workers are connected", func() error { return wantConnected(r.control.Load(), 3) })
	if len(s.kept) != 2 {
		t.Errorf("the workers %v were kept, want 2", s.kept)
	}
	if err := r.driver().Recover(within(t), box.ID, handle); err != nil {
		t.Fatalf("Recover() = %v", err)
	}
	r.driver().Settle(map[sandbox.ID]sandbox.WorkspaceID{box.ID: "ws_1", sandbox.NewID(): "ws_2"})
	if want := kept.id.ID + " ws_1"; len(s.claimed) != 1 || s.claimed[0] != want {
		t.Errorf("claimed are %q, want %q", s.claimed, want)
	}
	eventually(t, "the worker without a box is removed", func() error {
		if s.count() != 1 {
			return fmt.Errorf("there are %d", s.count())
		}
		return nil
	})
	if s.only(t) != kept {
		t.Error("the worker with the box was removed")
	}
	r.wantAnswer(t, box.ID)
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	s.wantNone(t)
}

// TestWithoutTheSupplier checks that a server without a supplier removes the records of workers that an earlier server made, with their boxes.
func TestWithoutTheSupplier(t *testing.T) {
	r, s := newSupplied(t)
	box, handle := r.started(t, gib)
	r.started(t, gib)
	old := r.control.Load()
	r.supplier, r.limit = nil, func(memory int64) int64 { return memory }
	r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := r.driver().Recover(within(t), box.ID, handle); err != nil {
		t.Fatalf("Recover() = %v", err)
	}
	r.driver().Settle(nil)
	r.wantAnswer(t, box.ID)
	large := spec()
	large.Resources.MemoryBytes = 2 * gib // more than the worker has that was not supplied
	if _, err := r.driver().Create(within(t), large); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Create() = %v on %q, want unavailable: the worker of another box is no place", err, r.driver().Of(large.ID))
	}
	records := func(want int) {
		t.Helper()
		eventually(t, "the records of workers without a box are removed", func() error {
			list, err := r.rows.List(t.Context())
			if len(list) != want {
				return fmt.Errorf("there are %d records, want %d", len(list), want)
			}
			return err
		})
	}
	records(2)
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	records(1)
	for _, m := range s.machines { // nothing ends them
		m.end()
	}
}

// TestUnexpectedWorker checks that a worker whose box has ended does not join again.
func TestUnexpectedWorker(t *testing.T) {
	r, s := newSupplied(t)
	box, _ := r.started(t, gib)
	m := s.only(t)
	refused := make(chan error, 1)
	if err := r.driver().Destroy(within(t), box.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	s.wantNone(t)
	again := &machine{rig: r, id: m.id, host: m.host, said: m.said, dir: t.TempDir(), saved: map[string]bool{}}
	again.refused = func(err error) {
		select {
		case refused <- err:
		default:
		}
	}
	again.start(t)
	defer again.end()
	select {
	case err := <-refused:
		if sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("Attach() = %v, want a conflict", err)
		}
	case <-within(t).Done():
		t.Error("the worker is not refused")
	}
}
