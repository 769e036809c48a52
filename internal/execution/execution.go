package execution

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// cancelGrace is the time between SIGTERM and SIGKILL of an execution that is canceled or timed
// out.
const cancelGrace = 5 * time.Second

// execution is an execution that has not ended.
type execution struct {
	box      *box.Box
	request  *Request          // nil when it was found after a restart, or was started
	env      map[string]string // of the request; nil when it was found after a restart
	reserved int64             // bytes of request.Files that the box's agent counts
	typed    *guest.Input      // the input of its terminal; nil without a terminal
	current  atomic.Pointer[executionView]
	lost     atomic.Bool // its process is gone, although another has its id

	mu     sync.Mutex       // orders changes; held while they are recorded
	stream *agentapi.Stream // the connection to its process; nil while there is none; guarded by mu
}

// executionView is an execution as recorded at some time.
type executionView struct {
	sandbox.Execution
	changed chan struct{} // closed when this view is not current any more
}

func newExecution(b *box.Box, e sandbox.Execution, req *Request) *execution {
	x := &execution{box: b, request: req}
	if req != nil {
		if x.env = req.Env; x.env == nil {
			x.env = map[string]string{}
		}
	}
	if e.TTY {
		// Without memory it is narrow all the same, and not counted: executions of a
		// sandbox are few.
		x.typed, _ = guest.NewInput(b.Agent, 0)
	}
	x.set(e)
	return x
}

func (x *execution) view() *executionView { return x.current.Load() }

// connection returns the present connection; nil while there is none.
func (x *execution) connection() *agentapi.Stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stream
}

// set replaces the recorded execution with e and wakes waiters.
func (x *execution) set(e sandbox.Execution) {
	if old := x.current.Swap(&executionView{Execution: e, changed: make(chan struct{})}); old != nil {
		close(old.changed)
	}
	x.box.Changes.Send()
}

// dropRequest releases the request, whose files can be large, because the execution is not started
// again. Only the goroutine of the execution calls it.
func (x *execution) dropRequest() {
	x.request = nil
	x.box.Agent.Release(x.reserved)
	x.reserved = 0
}

// liveExecutions are the executions that have not ended.
type liveExecutions struct {
	mu  sync.RWMutex
	ids map[sandbox.ExecutionID]*execution // guarded by mu
}

func (x *liveExecutions) add(e *execution) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ids[e.view().ID] = e
}

func (x *liveExecutions) remove(id sandbox.ExecutionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.ids, id)
}

// ForgetTyped discards terminal input that the sandbox has not read, because the sandbox returns to
// a checkpoint.
func (s *Service) ForgetTyped(b *box.Box) {
	x := &s.live
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.ids {
		if e.box == b && e.typed != nil {
			e.typed.Forget()
		}
	}
}

func (x *liveExecutions) byID(id sandbox.ExecutionID) *execution {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ids[id]
}

// Start records a command, starts it, and returns when it runs or has ended. It resumes a paused
// sandbox. If the command cannot be started, Start returns an execution with that result, not an
// error. The command continues when ctx ends.
//
// Errors: Invalid, naming the field; QuotaExceeded; the errors of guest.Calls.Exec for reaching the
// sandbox; DiskFull; Unsupported if the server stores no streams; CodeBlocked.
func (s *Service) Start(ctx context.Context, c sandbox.Caller, ref string, req Request) (sandbox.Execution, error) {
	if !s.work.Running() {
		return sandbox.Execution{}, box.ErrClosed
	}
	if err := req.Validate(); err != nil {
		return sandbox.Execution{}, err
	}
	b, sb, err := s.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Execution{}, err
	}
	if err := guest.CheckLimits(req.Limits, sb.Resources); err != nil {
		return sandbox.Execution{}, err
	}
	if err := audit.FromContext(ctx).Command(ctx, req.argv(bash), sb.Env, req.Env); err != nil {
		return sandbox.Execution{}, err
	}
	if b, err = s.guest.Enter(ctx, b, &sb); err != nil {
		return sandbox.Execution{}, err
	}
	if err := s.guest.Review(ctx, b, req.code(ctx)); err != nil {
		return sandbox.Execution{}, err
	}
	req.reviewed = true
	x, err := s.queue(ctx, c, b, &req, false)
	if err != nil {
		return sandbox.Execution{}, err
	}
	s.work.Go(func() { s.execute(x) })
	e, err := s.await(ctx, x, func(e *sandbox.Execution) bool { return e.State != sandbox.ExecutionQueued })
	if sandbox.CodeOf(err) == sandbox.NotRunning {
		return e, nil // it is recorded, and starts when the sandbox resumes
	}
	return e, err
}

// queue records an execution and its streams. The caller has written the command to the audit log,
// and starts the goroutine that executes it.
func (s *Service) queue(ctx context.Context, c sandbox.Caller, b *box.Box, req *Request, oneShot bool) (*execution, error) {
	if s.streams == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this server keeps no streams")
	}
	reserved := req.size()
	if err := b.Agent.Reserve(reserved, true); err != nil {
		return nil, box.AgentError(err)
	}
	cu := cleanup.Make(func() { b.Agent.Release(reserved) })
	defer cu.Clean()
	e := sandbox.Execution{
		ID: sandbox.NewExecutionID(), Sandbox: b.ID, Workspace: c.Workspace, Kind: req.Kind,
		Argv: sandbox.RecordedCommand(req.argv(bash)), State: sandbox.ExecutionQueued, TTY: req.TTY != nil, OneShot: oneShot,
		Stdin:     req.StdinStream,
		Stdout:    sandbox.StreamRef{ID: s.owner.NewStreamID(b.ID), Off: req.StdoutOff},
		Stderr:    sandbox.StreamRef{ID: s.owner.NewStreamID(b.ID), Off: req.StderrOff},
		CreatedBy: c.User, CreatedAt: time.Now().UTC(),
	}
	if req.Combined || e.TTY {
		e.Stderr = e.Stdout
	}
	entry := audit.FromContext(ctx)
	entry.Made("execution", string(e.ID), "")
	for _, f := range req.Files {
		entry.Detail("path", f.Path)
	}
	if req.Stdin && e.Stdin == "" && !e.TTY {
		e.Stdin = s.owner.NewStreamID(b.ID)
		if err := s.streams.Create(e.Stdin, sandbox.StdinMax); err != nil {
			return nil, err
		}
	}
	if req.StdinStream != "" { // purgeStreams knows it when its row is there
		if err := s.streams.Use(req.StdinStream); err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return nil, err
		}
	}
	// The row comes first: streams without one would never be found again.
	if err := s.store.CreateExecution(ctx, e, sandbox.ExecutionsRunning); err != nil {
		return nil, err
	}
	s.inputs.used(e.Stdin)
	x := newExecution(b, e, req)
	x.reserved = reserved
	cu.Release()
	s.live.add(x)
	if err := s.makeOutputs(&e); err != nil {
		s.fail(x, "its streams could not be made")
		x.dropRequest()
		if x.typed != nil {
			x.typed.End()
		}
		return nil, err
	}
	return x, nil
}

// StartFirst records the command of a new sandbox, and starts it when the sandbox runs. With
// oneShot the sandbox ends with the command. If the command cannot be recorded, StartFirst ends the
// sandbox. Errors: QuotaExceeded, DiskFull, Unsupported; errors of the audit log.
func (s *Service) StartFirst(ctx context.Context, c sandbox.Caller, b *box.Box, req *Request, oneShot bool) error {
	err := audit.FromContext(ctx).Command(ctx, req.argv(bash), b.View().Sandbox.Env, req.Env)
	var x *execution
	if err == nil {
		x, err = s.queue(ctx, c, b, req, oneShot)
	}
	if err != nil {
		s.sandboxes.End(b, sandbox.Cause{Code: sandbox.CauseInternal, Message: "its command could not be recorded"})
		return err
	}
	s.work.Go(func() { s.execute(x) })
	return nil
}

// makeOutputs makes the streams of a new execution.
func (s *Service) makeOutputs(e *sandbox.Execution) error {
	for _, ref := range outputs(e) {
		most := s.cfg.StreamMax
		if ref.Off {
			most = 0
		}
		if err := s.streams.Create(ref.ID, most); err != nil {
			return err
		}
	}
	return nil
}

// outputs returns the output streams of an execution, without duplicates.
func outputs(e *sandbox.Execution) []*sandbox.StreamRef {
	if e.Stderr.ID == e.Stdout.ID {
		return []*sandbox.StreamRef{&e.Stdout}
	}
	return []*sandbox.StreamRef{&e.Stdout, &e.Stderr}
}

// await returns the execution as soon as ok accepts it, or in its present state when ctx ends, with
// an error when the server closes and when the sandbox is paused. Errors: Unavailable; NotRunning.
func (s *Service) await(ctx context.Context, x *execution, ok func(*sandbox.Execution) bool) (sandbox.Execution, error) {
	for {
		v, at := x.view(), x.box.View()
		if ok(&v.Execution) {
			return s.measured(v.Execution), nil
		}
		if at.Sandbox.State == sandbox.Paused { // nothing but a resume brings the execution on
			return s.measured(v.Execution), sandbox.Errorf(sandbox.NotRunning,
				"sandbox %q is paused, and execution %s with it; resume the sandbox, then wait again: the execution continues", at.Sandbox.Name, v.ID)
		}
		select {
		case <-v.changed:
		case <-at.Changed:
		case <-ctx.Done():
			return s.measured(x.view().Execution), nil
		case <-s.ctx.Done():
			return s.measured(x.view().Execution), box.ErrClosed
		}
	}
}

// measured adds the present sizes of the outputs to a running execution.
func (s *Service) measured(e sandbox.Execution) sandbox.Execution {
	if e.State.Ended() || s.streams == nil {
		return e
	}
	for _, ref := range []*sandbox.StreamRef{&e.Stdout, &e.Stderr} {
		if info, err := s.streams.Info(ref.ID); err == nil {
			ref.Bytes, ref.Truncated = info.Bytes, info.Truncated && !ref.Off
		}
	}
	return e
}

// Get returns an execution. Errors: NotFound.
func (s *Service) Get(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID) (sandbox.Execution, error) {
	return s.Wait(ctx, c, id, 0)
}

// Wait returns an execution when it has ended, or in its present state after timeout or when ctx
// ends. Errors: NotFound; NotRunning, at once, when the sandbox is or gets paused; Unavailable when
// the server closes.
func (s *Service) Wait(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID, timeout time.Duration) (sandbox.Execution, error) {
	x, e, err := s.findExecution(ctx, c, id)
	if err != nil || x == nil {
		return c.ShownExecution(e), err
	}
	if timeout <= 0 {
		return c.ShownExecution(s.measured(e)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e, err = s.await(ctx, x, func(e *sandbox.Execution) bool { return e.State.Ended() })
	return c.ShownExecution(e), err
}

// findExecution returns an execution, and its live part unless it has ended. Errors: NotFound; Unavailable for the live execution of a sandbox that another server works on.
func (s *Service) findExecution(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID) (*execution, sandbox.Execution, error) {
	x := s.live.byID(id)
	if x != nil {
		if e := x.view().Execution; e.Workspace == c.Workspace {
			return x, e, nil
		}
	}
	e, err := s.store.Execution(ctx, id)
	switch {
	case err == nil && e.Workspace != c.Workspace:
		err = sandbox.Errorf(sandbox.NotFound, "there is no such execution")
	case err == nil && !e.State.Ended():
		err = s.owner.Check(e.Sandbox)
	}
	return nil, e, err
}

// List returns the executions of a sandbox, newest first, also after the sandbox ended. A kind
// selects the executions of that kind. Errors: NotFound; Invalid, naming limit or cursor.
func (s *Service) List(ctx context.Context, c sandbox.Caller, ref string, kind sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error) {
	_, sb, err := s.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return page.Page[sandbox.Execution]{}, err
	}
	p, err := s.store.Executions(ctx, sb.ID, kind, r)
	for i := range p.Items {
		p.Items[i] = c.ShownExecution(s.measured(p.Items[i]))
	}
	return p, err
}

// Cancel ends an execution: it sends SIGTERM, and SIGKILL 5 s later; with force it sends SIGKILL to
// all processes at once. It returns the execution in its present state without waiting, and an
// ended execution unchanged. It does not resume a paused sandbox: the execution ends when the
// sandbox resumes.
//
// Errors: NotFound; Unavailable.
func (s *Service) Cancel(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID, force bool) (sandbox.Execution, error) {
	x, e, err := s.findExecution(ctx, c, id)
	if err != nil || x == nil {
		return e, err
	}
	how := sandbox.CancelTerm
	if force {
		how = sandbox.CancelForce
	}
	err = s.change(ctx, x, func(e *sandbox.Execution) {
		if e.Cancel != sandbox.CancelForce {
			e.Cancel = how
		}
	})
	if err != nil && sandbox.CodeOf(err) != sandbox.Ended {
		return e, err
	}
	connected := x.connection() != nil
	if connected {
		s.work.Go(func() { s.signalCancel(x) })
	}
	return s.measured(x.view().Execution), nil
}

// signalCancel sends the signal of a cancel to the execution's process.
func (s *Service) signalCancel(x *execution) {
	ctx, cancel := context.WithTimeout(x.box.Context(), callTimeout)
	defer cancel()
	e := x.view()
	var err error
	if e.Cancel == sandbox.CancelForce {
		err = x.box.Agent.Signal(ctx, processID(&e.Execution), sigkill)
	} else {
		err = x.box.Agent.Terminate(ctx, processID(&e.Execution), cancelGrace)
	}
	if err == nil || x.view().State.Ended() || x.box.Context().Err() != nil {
		return
	}
	// Most often it has ended by itself. When not, a broken connection is made
	// again, and with it this is.
	s.log.Info("execution could not be signalled", "sandbox", e.Sandbox, "execution", e.ID, "error", err)
}

// change records a change of an execution that has not ended. Errors: Ended; errors of the store.
func (s *Service) change(ctx context.Context, x *execution, mutate func(*sandbox.Execution)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	prev := x.view().Execution
	return retry.Change(ctx, func() error {
		next := prev
		mutate(&next)
		err := s.store.UpdateExecution(ctx, prev, next)
		if err == nil {
			x.set(next)
			return nil
		}
		if sandbox.CodeOf(err) == sandbox.Conflict { // an earlier change was recorded, although the store reported an error
			if row, readErr := s.store.Execution(ctx, prev.ID); readErr == nil {
				prev = row
			}
		}
		return err
	})
}
