package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sync/errgroup"
)

// Fork makes children of a running or paused sandbox: new sandboxes with its
// memory, processes and files as they are, each with an id, name and URL of its
// own. A running parent stands still only while it is saved. It returns when
// each child runs or has failed, with the results in the order of the names;
// when ctx ends first the work goes on.
//
// Errors: as [Service.Pause]; Invalid, naming the field. Errors of single
// children are in their results.
func (s *Service) Fork(ctx context.Context, c Caller, ref string, req ForkRequest) ([]ForkResult, error) {
	if err := s.cfg.validateFork(&req); err != nil {
		return nil, err
	}
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	var results []ForkResult
	done := make(chan struct{})
	if !s.spawn(func() {
		defer close(done)
		begin := time.Now()
		results, err = s.fork(b, c, &req)
		s.metrics.op(flightFork, begin, err)
	}) {
		return nil, errClosed
	}
	select {
	case <-done:
		return results, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fork saves the parent and makes its children.
func (s *Service) fork(b *box, c Caller, req *ForkRequest) ([]ForkResult, error) {
	path, release := s.saved.fork()
	defer func() {
		if err := release(); err != nil {
			s.log.Error("checkpoint of a fork not removed, trying again soon", "sandbox", b.id, "error", err)
		}
	}()
	var parent sandbox.Sandbox
	err := s.fly(s.ctx, b, flightFork, func(*flight) error {
		begin := time.Now()
		b.activity.at(begin)
		if sb := b.sandbox(); sb.State == sandbox.Paused {
			if _, err := s.saved.restorable(s.saved.path(b.id, sb.Saved), sandbox.MemoryRequire); err != nil {
				return sandbox.Wrap(sandbox.Unsupported, err, "%s; resume it, which starts it anew with its files, and fork it then", publicReason("it cannot be forked", err))
			}
		}
		if err := s.saveTo(b, path, driver.CheckpointOptions{Volatile: true}); err != nil {
			return err
		}
		parent = b.sandbox()
		return s.store.AppendEvent(s.ctx, sandbox.Event{
			Sandbox: b.id, Time: time.Now().UTC(), Type: sandbox.EventForked, Message: "sandboxes are made from it",
			Data: map[string]string{"count": strconv.Itoa(req.Count), "saved_ms": milliseconds(time.Since(begin))},
		})
	})
	if err != nil {
		return nil, err
	}
	children := &children{service: s, caller: c, parent: parent, request: *req, path: path, results: make([]ForkResult, req.Count)}
	children.make()
	return children.results, nil
}

// validateFork checks a request and sets its Count.
func (c *Config) validateFork(req *ForkRequest) error {
	if req.Count == 0 {
		req.Count = max(1, len(req.Names))
	}
	if req.Count < 1 || req.Count > sandbox.ForkMax {
		return sandbox.InvalidField("count", "must be 1 to %d", sandbox.ForkMax)
	}
	if len(req.Names) > req.Count {
		return sandbox.InvalidField("names", "has more names than there are children")
	}
	seen := map[string]bool{}
	for _, name := range req.Names {
		if err := checkText("names", name, sandbox.NameMax); err != nil {
			return err
		}
		if seen[name] {
			return sandbox.InvalidField("names", "has %q twice", fieldText(name))
		}
		seen[name] = true
	}
	as := CreateRequest{Env: req.Env, Labels: req.Labels, TTL: req.TTL}
	if req.Timeouts != nil {
		as.Timeouts = *req.Timeouts
	}
	return c.validate(&as)
}

// children are the sandboxes of one fork while they are made.
type children struct {
	service *Service
	caller  Caller
	parent  sandbox.Sandbox
	request ForkRequest
	path    string // of what they are made from
	results []ForkResult
}

// make makes them all; it returns when none needs the checkpoint any more.
func (ch *children) make() {
	var g errgroup.Group
	g.SetLimit(ch.service.cfg.CreateConcurrency)
	for i := range ch.results {
		g.Go(func() error {
			ch.results[i] = ch.makeOne(i)
			return nil
		})
	}
	_ = g.Wait() // each result has its own error
}

// makeOne makes a child and waits until it runs or has failed.
func (ch *children) makeOne(i int) ForkResult {
	s := ch.service
	creation, err := ch.creation(i)
	if err != nil {
		return ForkResult{Err: err}
	}
	b, rec, err := s.record(s.ctx, creation, nil)
	switch {
	case err != nil:
		return ForkResult{Err: err}
	case b == nil:
		return ForkResult{Err: sandbox.Errorf(sandbox.Exists, "there is a sandbox %q (%s) already", rec.Sandbox.Name, rec.Sandbox.ID)}
	}
	s.launch(b, ch.revive)
	sb, err := s.Wait(s.ctx, ch.caller, string(b.id), sandbox.Running, s.cfg.StartTimeout+destroyTimeout)
	switch {
	case err != nil:
		return ForkResult{Sandbox: sb, Err: err}
	case sb.State != sandbox.Running:
		return ForkResult{Sandbox: sb, Err: stateError(&sb)}
	}
	return ForkResult{Sandbox: sb}
}

// creation is what to record for a child.
func (ch *children) creation(i int) (sandbox.Creation, error) {
	now := time.Now().UTC()
	req := &ch.request
	sb := ch.parent
	sb.ID, sb.State, sb.Parent = sandbox.NewID(), sandbox.Provisioning, ch.parent.ID
	sb.Name = newName()
	if i < len(req.Names) {
		sb.Name = req.Names[i]
	}
	sb.HostLabel = sandbox.HostLabel(sb.Name)
	sb.Env, sb.Labels = merged(sb.Env, req.Env), merged(sb.Labels, req.Labels)
	if req.TTL != 0 {
		sb.TTL = req.TTL
	}
	if req.Timeouts != nil {
		sb.Timeouts = *req.Timeouts
	}
	if err := checkEnv(sb.Env); err != nil {
		return sandbox.Creation{}, err
	}
	if err := checkLabels(sb.Labels); err != nil {
		return sandbox.Creation{}, err
	}
	sb.Handle, sb.Saved, sb.StartedAt, sb.PausedAt = nil, "", time.Time{}, time.Time{}
	sb.CreatedBy, sb.CreatedAt, sb.UpdatedAt, sb.LastActivityAt = ch.caller.User, now, now, now
	return sandbox.Creation{
		Sandbox: sb, RequestHash: "fork of " + string(ch.parent.ID), MaxLive: ch.service.cfg.MaxSandboxes,
		Event: sandbox.Event{
			Time: now, Type: sandbox.EventCreated, Message: "the sandbox was forked from another",
			Data: map[string]string{"image": sb.Image, "user": string(ch.caller.User), "parent": string(ch.parent.ID)},
		},
	}, nil
}

func merged(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, over)
	return m
}

// revive takes the steps from a child's row to a running sandbox. What was made
// so far is left to the destroyer when it fails.
func (ch *children) revive(b *box) error {
	s := ch.service
	handle, err := s.bringBack(b, ch.path)
	if err != nil {
		return fail(sandbox.CauseStart, err, "the fork could not be started")
	}
	sb := b.sandbox()
	if err := s.recordBox(b, sb.ImageDigest, handle); err != nil {
		return fmt.Errorf("fork of sandbox %s: %w", ch.parent.ID, err)
	}
	b.mu.Lock()
	if b.ctx.Err() == nil {
		s.watchLater(b)
	}
	b.mu.Unlock()
	return s.recordRunning(b, &sandbox.Image{Digest: sb.ImageDigest})
}
