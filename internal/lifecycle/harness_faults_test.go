package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

// faults stand between a server and what it writes to: they make single calls
// fail or wait, or make the server as good as dead.
type faults struct {
	mu    sync.Mutex
	calls []string // the calls so far; guarded by mu
	// before, when set, is asked before every call that changes something; its
	// error is the call's, which then has no effect. after is asked behind it; its
	// error hides the effect from the server. Guarded by mu.
	before, after func(n int, call string) error
	// dial, when set, connects to agents instead; guarded by mu.
	dial func() (net.Conn, error)
	open []net.Conn // to agents; guarded by mu
	// event, when set, is the result of appending an event, which then has no effect; guarded by mu.
	event error
	dead  bool // guarded by mu
}

var errDead = errors.New("this server was killed")

func (f *faults) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// on sets what is asked before and after calls.
func (f *faults) on(before, after func(n int, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// called returns the calls so far.
func (f *faults) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// do makes a call that changes something.
func (f *faults) do(call string, do func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	n, before, after := len(f.calls), f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(n, call); err != nil {
			return err
		}
	}
	if f.isDead() {
		return errDead
	}
	err := do()
	if after != nil {
		if err := after(n, call); err != nil {
			return err
		}
	}
	if f.isDead() {
		return errDead
	}
	return err
}

func (f *faults) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// The records that lifecycle needs, with names that hide no method.
type (
	sandboxRows   = store.Sandboxes
	executionRows = store.Executions
	quotaRows     = store.Quotas
	usageRows     = store.Usage
	snapshotRows  = store.Snapshots
)

// storeRows are the records of a store.
type storeRows struct {
	*sandboxRows
	*executionRows
	*quotaRows
	*usageRows
	*snapshotRows
}

func rowsOf(st *store.Store, owner *sandbox.Ownership) storeRows {
	return storeRows{st.Sandboxes.Owned(owner), st.Executions, st.Quotas, st.Usage, st.Snapshots}
}

type faultyStore struct {
	storeRows
	faults *faults
	store  *store.Store
	// owned, when set, is called after StreamOwners.
	owned atomic.Pointer[func()]
}

func (s *faultyStore) StreamOwners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error) {
	owners, err := s.storeRows.StreamOwners(ctx)
	if owned := s.owned.Load(); owned != nil {
		(*owned)()
	}
	return owners, err
}

func (s *faultyStore) DeleteExecution(ctx context.Context, id sandbox.ExecutionID) error {
	return s.faults.do("store.DeleteExecution", func() error { return s.storeRows.DeleteExecution(ctx, id) })
}

func (s *faultyStore) CreateSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (rec sandbox.Recorded, err error) {
	err = s.faults.do("store.CreateSandbox", func() error {
		rec, err = s.storeRows.CreateSandbox(ctx, c, a)
		return err
	})
	return rec, err
}

func (s *faultyStore) CreateForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) (recs []sandbox.Recorded, err error) {
	err = s.faults.do("store.CreateForks", func() error {
		recs, err = s.storeRows.CreateForks(ctx, children, a)
		return err
	})
	return recs, err
}

func (s *faultyStore) SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.SetBox", func() error {
		sb, err = s.storeRows.SetBox(ctx, id, digest, handle)
		return err
	})
	return sb, err
}

func (s *faultyStore) StartAgain(ctx context.Context, id sandbox.ID, ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.StartAgain", func() error {
		sb, err = s.storeRows.StartAgain(ctx, id, ev)
		return err
	})
	return sb, err
}

func (s *faultyStore) Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.Transition "+string(to), func() error {
		sb, err = s.storeRows.Transition(ctx, id, from, to, c, ev)
		return err
	})
	return sb, err
}

// AppendEvent is not among the calls of [faults.do]: an event alone is no step of a change.
func (s *faultyStore) AppendEvent(ctx context.Context, ev sandbox.Event) error {
	s.faults.mu.Lock()
	err := s.faults.event
	s.faults.mu.Unlock()
	if err != nil {
		return err
	}
	return s.storeRows.AppendEvent(ctx, ev)
}

func (f *faults) setEvent(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.event = err
}

func (s *faultyStore) ChangeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.ChangeSandbox", func() error {
		sb, err = s.storeRows.ChangeSandbox(ctx, id, c, ev)
		return err
	})
	return sb, err
}

func (s *faultyStore) ResumeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event, a quota.Admission) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.Transition "+string(sandbox.Resuming), func() error {
		sb, err = s.storeRows.ResumeSandbox(ctx, id, c, ev, a)
		return err
	})
	return sb, err
}

type faultyDriver struct {
	vanished atomic.Pointer[chan struct{}] // the host does not answer List, which sends a value; nil: it answers
	driver.Driver
	faults *faults
	specs  sync.Map // of what was created, by id
	// furnished are the root filesystems that blank boxes were given, by id.
	furnished sync.Map
	// isolated is claimed, see Capabilities.
	isolated bool
	// listed, when set, is called behind the next list of boxes.
	listed atomic.Pointer[func()]
	// away is whether no call reaches boxes, see Reach.
	away atomic.Bool
	// tidied are the checkpoints that there were when the server started, beforeTidy the calls until then.
	tidied, beforeTidy []string
}

func (d *faultyDriver) Create(ctx context.Context, spec driver.Spec) (h driver.Handle, err error) {
	d.specs.Store(spec.ID, spec)
	err = d.faults.do("driver.Create", func() error {
		h, err = d.Driver.Create(ctx, spec)
		return err
	})
	return h, err
}

func (d *faultyDriver) Reach(sandbox.ID) error {
	if d.away.Load() {
		return driver.ErrAway
	}
	return nil
}

func (d *faultyDriver) List(ctx context.Context) ([]sandbox.ID, error) {
	if waits := d.vanished.Load(); waits != nil {
		select {
		case *waits <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	ids, err := d.Driver.List(ctx)
	if listed := d.listed.Swap(nil); listed != nil {
		(*listed)()
	}
	return ids, err
}

func (d *faultyDriver) Start(ctx context.Context, id sandbox.ID) error {
	return d.faults.do("driver.Start", func() error { return d.Driver.Start(ctx, id) })
}

func (d *faultyDriver) Recover(ctx context.Context, id sandbox.ID, h driver.Handle) error {
	return d.faults.do("driver.Recover", func() error { return d.Driver.Recover(ctx, id, h) })
}

func (d *faultyDriver) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (layers int, err error) {
	d.furnished.Store(id, rootfs)
	err = d.faults.do("driver.Furnish", func() error {
		layers, err = d.Driver.(driver.Furnisher).Furnish(ctx, id, rootfs)
		return err
	})
	return layers, err
}

func (d *faultyDriver) Destroy(ctx context.Context, id sandbox.ID) error {
	return d.faults.do("driver.Destroy", func() error { return d.Driver.Destroy(ctx, id) })
}

func (d *faultyDriver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	return d.faults.do("driver.Checkpoint", func() error {
		return d.Driver.(driver.Checkpointer).Checkpoint(ctx, id, dir, opts)
	})
}

func (d *faultyDriver) CanRestore(dir string) error {
	return d.Driver.(driver.Checkpointer).CanRestore(dir)
}

func (d *faultyDriver) Verify(ctx context.Context, dir string) (memory, files error) {
	return d.Driver.(driver.Checkpointer).Verify(ctx, dir)
}

func (d *faultyDriver) OpenLayer(dir string) (io.ReadCloser, error) {
	return d.Driver.(driver.Checkpointer).OpenLayer(dir)
}

func (d *faultyDriver) Restore(ctx context.Context, spec driver.Spec, dir string) (h driver.Handle, err error) {
	err = d.faults.do("driver.Restore", func() error {
		h, err = d.Driver.(driver.Checkpointer).Restore(ctx, spec, dir)
		return err
	})
	return h, err
}

type faultyCheckpoints struct {
	checkpoint.Records
	faults *faults
}

func (c *faultyCheckpoints) Begin(ctx context.Context, id sandbox.CheckpointID, owner sandbox.ID, copyOf sandbox.CheckpointID, at time.Time) error {
	return c.faults.do("checkpoints.Begin", func() error { return c.Records.Begin(ctx, id, owner, copyOf, at) })
}

func (c *faultyCheckpoints) Abandon(ctx context.Context, id sandbox.CheckpointID) error {
	return c.faults.do("checkpoints.Abandon", func() error { return c.Records.Abandon(ctx, id) })
}

func (c *faultyCheckpoints) Create(ctx context.Context, cp *sandbox.Checkpoint, limit int, ev sandbox.Event, a quota.Admission) error {
	return c.faults.do("checkpoints.Create", func() error { return c.Records.Create(ctx, cp, limit, ev, a) })
}

func (c *faultyCheckpoints) ReplaceAutomatic(ctx context.Context, cp sandbox.Checkpoint, a quota.Admission) error {
	return c.faults.do("checkpoints.ReplaceAutomatic", func() error { return c.Records.ReplaceAutomatic(ctx, cp, a) })
}

func (c *faultyCheckpoints) SetInterval(ctx context.Context, id sandbox.ID, d time.Duration, ev sandbox.Event) error {
	return c.faults.do("checkpoints.SetInterval", func() error { return c.Records.SetInterval(ctx, id, d, ev) })
}

func (c *faultyCheckpoints) Delete(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error {
	return c.faults.do("checkpoints.Delete", func() error { return c.Records.Delete(ctx, id, ev) })
}

type faultyArchives struct {
	archiver.Records
	faults *faults
}

func (a *faultyArchives) Archive(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, adm quota.Admission) (sb sandbox.Sandbox, err error) {
	err = a.faults.do("archives.Archive", func() error {
		sb, err = a.Records.Archive(ctx, id, saved, size, ev, adm)
		return err
	})
	return sb, err
}

func (a *faultyArchives) Copied(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, at time.Time, adm quota.Admission) error {
	return a.faults.do("archives.Copied", func() error { return a.Records.Copied(ctx, id, saved, size, at, adm) })
}

func (a *faultyArchives) Fetched(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, adm quota.Admission) (sb sandbox.Sandbox, err error) {
	err = a.faults.do("archives.Fetched", func() error {
		sb, err = a.Records.Fetched(ctx, id, saved, size, ev, adm)
		return err
	})
	return sb, err
}

type faultyCopies struct {
	archiver.Checkpoints
	faults *faults
}

func (c *faultyCopies) CheckpointCopied(ctx context.Context, id sandbox.CheckpointID, size int64, at time.Time, a quota.Admission) error {
	return c.faults.do("archives.CheckpointCopied", func() error { return c.Checkpoints.CheckpointCopied(ctx, id, size, at, a) })
}
