// Package autocheckpoint makes automatic checkpoints of sandboxes, and resumes sandboxes whose
// processes were lost from them.
//
// The [Scheduler] decides when: some time after the last checkpoint, few at once, and in fair order
// among workspaces. The [Keeper] makes, replaces and deletes the checkpoints, at most one per
// sandbox. Its [Host] saves boxes and changes their state.
package autocheckpoint

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandbox is a running sandbox that has automatic checkpoints.
type Sandbox struct {
	ID        sandbox.ID
	Workspace sandbox.WorkspaceID
	// Interval is the time between two checkpoints.
	Interval time.Duration
	// Since is the time of the last checkpoint, or of the start of the sandbox.
	Since time.Time
}

// Sandboxes makes the checkpoints. Safe for concurrent use.
type Sandboxes interface {
	// Running returns the running sandboxes that have automatic checkpoints.
	Running() []Sandbox
	// Save makes the checkpoint of a sandbox, unless nothing used the sandbox since the last
	// one. It handles its own failures.
	Save(ctx context.Context, id sandbox.ID)
}

// spread is the fraction of the interval by which a checkpoint may be late, so that sandboxes
// that were started together are not all saved together.
const spread = 8

// Scheduler schedules the checkpoints of all sandboxes.
type Scheduler struct {
	sandboxes Sandboxes
	places    *fairsem.Semaphore
	tick      time.Duration
	seed      maphash.Seed // of the delays

	mu    sync.Mutex
	begun map[sandbox.ID]time.Time // when the last attempt began; guarded by mu
	work  sync.WaitGroup
	busy  map[sandbox.ID]bool // waits for a place or is being saved; guarded by mu
}

// New returns a scheduler that makes at most concurrent checkpoints at once, and looks for
// sandboxes once per tick.
func New(sandboxes Sandboxes, concurrent int, tick time.Duration) *Scheduler {
	return &Scheduler{
		sandboxes: sandboxes, places: fairsem.New(concurrent), tick: tick, seed: maphash.MakeSeed(),
		begun: map[sandbox.ID]time.Time{}, busy: map[sandbox.ID]bool{},
	}
}

// Run makes checkpoints until ctx ends, and returns when all checkpoints in progress have ended.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.work.Wait()
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.begin(ctx, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// begin starts a checkpoint of each sandbox that is due.
func (s *Scheduler) begin(ctx context.Context, now time.Time) {
	running := s.sandboxes.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[sandbox.ID]bool, len(running))
	for _, sb := range running {
		known[sb.ID] = true
		if s.busy[sb.ID] || now.Before(s.due(sb)) {
			continue
		}
		s.busy[sb.ID] = true
		s.work.Go(func() { s.save(ctx, sb) })
	}
	for id := range s.begun {
		if !known[id] {
			delete(s.begun, id)
		}
	}
}

// due returns when the next checkpoint of a sandbox is to be made.
//
// Preconditions: s.mu is held.
func (s *Scheduler) due(sb Sandbox) time.Time {
	since := sb.Since
	if at := s.begun[sb.ID]; at.After(since) { // the last attempt failed, or was not needed
		since = at
	}
	h := maphash.String(s.seed, string(sb.ID)+since.UTC().String())
	late := time.Duration(h % uint64(sb.Interval/spread))
	return since.Add(sb.Interval + late)
}

// save waits for a place and makes a checkpoint.
func (s *Scheduler) save(ctx context.Context, sb Sandbox) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, sb.ID)
	}()
	release, err := s.places.Acquire(ctx, sb.Workspace, nil)
	if err != nil {
		return // ctx has ended, or too many wait: the next tick tries again
	}
	defer release()
	s.mu.Lock()
	s.begun[sb.ID] = time.Now()
	s.mu.Unlock()
	s.sandboxes.Save(ctx, sb.ID)
}
