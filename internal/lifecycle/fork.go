package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/lookup"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/telemetry"
)

// forker makes forks.
type forker struct {
	cfg         *Config
	owner       *sandbox.Ownership // of the shards of children
	suspender   *suspender
	registrar   *registrar
	provisioner *provisioner
	saver       *savedbox.Saver
	reviver     *savedbox.Reviver
	starter     *starter
	states      *states
	watcher     *watcher
	saved       *checkpoint.Store
	quotas      *quota.Controller
	store       eventlog.Store
	metrics     *telemetry.Metrics
	work        *background.Group
	ctx         context.Context // of work
	log         *slog.Logger
}

// Fork creates children of a running or paused sandbox: new sandboxes with the present memory,
// processes and files of the parent, each with its own id, name and URL. The quota admits all
// children or none, before the parent is saved. A running parent is stopped only during the save.
// Fork returns when each child runs or has failed, with the results in the order of the names; if
// ctx ends after the admission, the work continues.
//
// Errors: as for [Service.Pause]; Invalid, naming the field; QuotaExceeded. The results have the
// errors of single children.
func (s *Service) Fork(ctx context.Context, c sandbox.Caller, ref string, req ForkRequest) ([]ForkResult, error) {
	return s.forks.fork(ctx, c, ref, req)
}

// fork is [Service.Fork].
func (r *forker) fork(ctx context.Context, c sandbox.Caller, ref string, req ForkRequest) ([]ForkResult, error) {
	if err := r.cfg.planning().CheckFork(&req); err != nil {
		return nil, err
	}
	b, err := r.suspender.stateful(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	limits, err := r.quotas.Limits(ctx, c.Workspace)
	if err != nil {
		return nil, err
	}
	if err := quota.CheckMax(c.Workspace, limits, b.Sandbox().Resources); err != nil {
		return nil, err
	}
	f := &fork{service: r, caller: c, parent: b, request: req, saved: make(chan struct{}), results: make([]ForkResult, req.Count)}
	if err := r.suspender.archives.Ready(ctx, b.Box); err != nil {
		return nil, err
	}
	if err := f.admit(ctx); err != nil {
		return nil, err
	}
	for _, child := range f.results {
		if child.Err != nil {
			continue
		}
		audit.FromContext(ctx).Made("sandbox", string(child.Sandbox.ID), child.Sandbox.Name)
	}
	done := make(chan struct{})
	if !r.work.Go(func() {
		defer close(done)
		begin := time.Now()
		err = f.run()
		r.metrics.Operation(box.Fork, begin, err)
	}) {
		return nil, box.ErrClosed // the next server ends them
	}
	select {
	case <-done:
		if err != nil {
			return nil, err
		}
		return f.results, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fork is a fork in progress: the parent and its children.
type fork struct {
	service *forker
	caller  sandbox.Caller
	parent  *entry
	request ForkRequest

	results []ForkResult
	boxes   []*entry // of the children; nil for a child whose name another sandbox has

	saved  chan struct{} // closed when the parent is saved, or could not be
	path   string        // of what they are made from; valid when saved
	digest string        // of the root filesystem below it; valid when saved
	anew   bool          // it has no memory; valid when saved
	err    error         // why the parent could not be saved; valid when saved
}

// admit records all children in state provisioning if the quota admits all of them.
func (f *fork) admit(ctx context.Context) error {
	s := f.service
	if err := f.parent.Settled(ctx); err != nil {
		return err
	}
	e := quota.Request{Workspace: f.caller.Workspace, Count: f.request.Count, MaxWait: f.request.WaitForQuota}
	return s.quotas.Admit(ctx, e, func(a quota.Admission) (n int, err error) {
		parent := f.parent.Sandbox()
		if err := s.forkable(f.parent, &parent); err != nil {
			return 0, err
		}
		creations := make([]sandbox.Creation, f.request.Count)
		for i := range creations {
			if creations[i], err = f.request.Child(s.owner.NewID(), &parent, f.caller.User, i); err != nil {
				return 0, err
			}
		}
		boxes, recs, err := s.registrar.recordForks(ctx, creations, a)
		if err != nil {
			return 0, err
		}
		f.boxes = boxes
		for i, rec := range recs {
			if boxes[i] == nil {
				f.results[i].Err = sandbox.Errorf(sandbox.Exists, "there is a sandbox %q (%s) already", rec.Sandbox.Name, rec.Sandbox.ID)
				continue
			}
			f.results[i].Sandbox = rec.Sandbox
			n++
		}
		return n, nil
	})
}

// forkable returns the errors that can be determined before the parent is saved.
func (r *forker) forkable(b *entry, sb *sandbox.Sandbox) error {
	switch sb.State {
	case sandbox.Running, sandbox.Pausing, sandbox.Resuming: // the operation in progress ends first
		return nil
	case sandbox.Paused:
		memory := sandbox.MemoryRequire
		if sb.FilesOnly {
			memory = sandbox.MemoryDiscard
		}
		if _, err := r.saved.Restorable(r.saved.Path(b.ID, sb.Saved), memory); err != nil {
			return sandbox.Wrap(sandbox.Unsupported, err, "%s; resume it, which starts it anew with its files, and fork it then", sandbox.Explain("it cannot be forked", err))
		}
		return nil
	}
	return box.StateError(sb)
}

// run saves the parent and starts the children from the saved state. It returns when each child
// runs or has failed, and the saved state is not needed any more. It fails if the parent could not
// be saved.
func (f *fork) run() error {
	s := f.service
	path, release := s.saved.Fork()
	defer func() {
		if err := release(); err != nil {
			s.log.Error("checkpoint of a fork not removed, trying again soon", "sandbox", f.parent.ID, "error", err)
		}
	}()
	f.path = path
	count := 0
	for _, b := range f.boxes {
		if b != nil {
			s.provisioner.launch(b, f.revive)
			count++
		}
	}
	if count > 0 {
		f.err = s.saver.Exclusively(s.ctx, f.parent.Box, box.Fork, func() error { return f.save(count) })
	}
	close(f.saved)
	var g sync.WaitGroup
	for i, b := range f.boxes {
		if b != nil {
			g.Go(func() { f.results[i] = f.await(b) })
		}
	}
	g.Wait()
	return f.err
}

// save writes the state that the children start from. It runs as an exclusive operation of the
// parent.
func (f *fork) save(count int) error {
	s, b := f.service, f.parent
	begin := time.Now()
	b.Activity.At(begin)
	if err := s.suspender.archives.Fetch(b.Context(), b.Box); err != nil {
		return err
	}
	sb := b.Sandbox()
	if err := s.forkable(b, &sb); err != nil {
		return err
	}
	if err := s.saver.SaveTo(b.Box, f.path, driver.CheckpointOptions{Volatile: true}); err != nil {
		return err
	}
	f.digest, f.anew = sb.ImageDigest, sb.FilesOnly
	return s.store.AppendEvent(s.ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventForked, Message: "sandboxes are made from it",
		Data: map[string]string{"count": strconv.Itoa(count), "saved_ms": milliseconds(time.Since(begin))},
	})
}

// await returns the result of a child. The time limits of a child begin when the child gets a slot;
// until then it needs the saved state.
func (f *fork) await(b *entry) ForkResult {
	v := b.View()
	for ; !lookup.Reached(v.Sandbox.State, sandbox.Running); v = b.View() {
		select {
		case <-v.Changed:
		case <-f.service.ctx.Done():
			return ForkResult{Sandbox: f.caller.Shown(v.Sandbox), Err: box.ErrClosed}
		}
	}
	sb := f.caller.Shown(v.Sandbox)
	if sb.State != sandbox.Running {
		return ForkResult{Sandbox: sb, Err: box.StateError(&sb)}
	}
	return ForkResult{Sandbox: sb}
}

// revive takes a child from its row to a running sandbox, after the parent was saved. After a
// failure the destroyer frees the child's resources.
func (f *fork) revive(b *entry) error {
	s := f.service
	select {
	case <-f.saved:
	case <-b.Context().Done():
		return b.Context().Err()
	}
	if f.err != nil {
		return fail(sandbox.CauseStart, f.err, "its parent could not be saved")
	}
	if b.Sandbox().ImageDigest != f.digest { // the parent went back to a checkpoint meanwhile
		if err := s.states.recordBox(b, f.digest, nil); err != nil {
			return fmt.Errorf("fork of sandbox %s: %w", f.parent.ID, err)
		}
	}
	bring := s.reviver.BringBack
	if f.anew {
		bring = s.reviver.StartAnew
	}
	handle, err := bring(b.Box, f.path)
	if err != nil {
		return fail(sandbox.CauseStart, err, "the fork could not be started")
	}
	if err := s.states.recordBox(b, f.digest, handle); err != nil {
		return fmt.Errorf("fork of sandbox %s: %w", f.parent.ID, err)
	}
	if f.anew {
		if _, err := s.starter.late(b); err != nil {
			return err
		}
	} else if err := s.starter.environments.AnnounceLater(b.Context(), b.Box); err != nil {
		s.log.Warn("new contexts and restarted programs of a fork have the environment of its parent", "sandbox", b.ID, "error", err)
	}
	b.Lock()
	if b.Context().Err() == nil {
		s.watcher.watchLater(b)
	}
	b.Unlock()
	return s.states.recordRunning(b, f.digest)
}
