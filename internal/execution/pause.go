package execution

import (
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// pauseGrace is the time between SIGTERM and SIGKILL of the processes of a sandbox that is paused without
	// its memory.
	pauseGrace = 2 * time.Second
	// PauseWait is the default time limit of [Interrupter.EndAll].
	PauseWait = pauseGrace + 3*time.Second
	pausePoll = 10 * time.Millisecond
)

// pausedWithout is the error of executions that a pause ended.
const pausedWithout = "its sandbox was paused without its memory"

// Interrupter ends the executions of sandboxes that are paused without their memory.
type Interrupter struct {
	service *Service
	wait    time.Duration
}

// NewInterrupter returns an interrupter for the executions of a service, which waits so long for the ends of processes and for their records.
func NewInterrupter(s *Service, wait time.Duration) *Interrupter { return &Interrupter{s, wait} }

// HasOneShot reports whether the sandbox of a box ends with one of its executions.
func (i *Interrupter) HasOneShot(b *box.Box) bool {
	for _, x := range i.service.live.of(b) {
		if x.view().OneShot {
			return true
		}
	}
	return false
}

// EndAll ends the processes of a sandbox that is being paused without its memory, and records its running
// executions as canceled for that reason. A process that does not end in time is lost with the memory. Its execution,
// and one without a connection to its process, ends without an exit code when the sandbox is paused.
func (i *Interrupter) EndAll(ctx context.Context, b *box.Box) {
	s := i.service
	ctx, cancel := context.WithTimeout(ctx, i.wait)
	defer cancel()
	var connected []*execution // the others learn the exit code only when the sandbox runs
	for _, x := range s.live.of(b) {
		if x.view().State != sandbox.ExecutionRunning {
			continue // it starts when the sandbox is resumed
		}
		if x.connection() != nil {
			connected = append(connected, x)
		}
		err := s.change(ctx, x, func(e *sandbox.Execution) {
			e.Error = pausedWithout
			if e.Cancel == sandbox.CancelNone {
				e.Cancel = sandbox.CancelTerm
			}
		})
		if err != nil && sandbox.CodeOf(err) != sandbox.Ended {
			s.logFailure("record that a pause ends an execution", err)
		}
	}
	if err := endProcesses(ctx, b); err != nil {
		s.log.Warn("processes of a sandbox that is paused without its memory may not have ended cleanly", "sandbox", b.ID, "error", err)
		return
	}
	for _, x := range connected {
		for v := x.view(); v.State == sandbox.ExecutionRunning && ctx.Err() == nil; v = x.view() {
			select {
			case <-v.changed:
			case <-ctx.Done():
			}
		}
	}
}

// endProcesses ends the processes of a box, and waits until they have ended.
func endProcesses(ctx context.Context, b *box.Box) error {
	asked := map[string]bool{}
	for {
		list, err := b.Agent.Processes(ctx)
		if err != nil {
			return err
		}
		var g sync.WaitGroup
		running := false
		for _, p := range list {
			if p.Exit != nil {
				continue
			}
			running = true
			if !asked[p.ID] {
				asked[p.ID] = true
				g.Go(func() { _ = b.Agent.Terminate(ctx, p.ID, pauseGrace) }) // an error means that it has ended
			}
		}
		g.Wait()
		if !running {
			return nil
		}
		select {
		case <-time.After(pausePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// of returns the executions of a box that have not ended.
func (x *liveExecutions) of(b *box.Box) []*execution {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var list []*execution
	for _, e := range x.ids {
		if e.box == b {
			list = append(list, e)
		}
	}
	return list
}
