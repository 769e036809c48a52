package agent

import (
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// maxRunning bounds the processes that run at the same time.
	maxRunning = 1024
	// maxEnded is how many ended processes remain in the table.
	maxEnded = 256
	// maxEndedOutput bounds the output of all ended processes together.
	maxEndedOutput = 8 << 20
)

// table contains the processes by id: all that run, and the last that ended.
type table struct {
	mu      sync.Mutex
	byID    map[string]*process // guarded by mu
	order   []*process          // guarded by mu; in the order they were started
	running int                 // guarded by mu
	ended   []*process          // guarded by mu; in the order they ended
	waiting chan struct{}       // guarded by mu; closed when no process runs; nil when nobody waits
}

func newTable() *table { return &table{byID: make(map[string]*process)} }

// start returns the process with that id, or makes it by start, which gets the function to call
// once when the process is done.
func (t *table) start(id string, start func(ended func(*process)) (*process, error)) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byID[id]; p != nil {
		return p, nil
	}
	if t.running >= maxRunning {
		return nil, answer.Errorf(agentapi.CodeTooMany, "%d commands already run in this sandbox", t.running)
	}
	p, err := start(t.done) // done waits for mu
	if err != nil {
		return nil, err
	}
	t.byID[id] = p
	t.order = append(t.order, p)
	t.running++
	return p, nil
}

// done moves a process to the ended processes and removes the oldest if there are too many. Attached
// readers still get the rest of their output.
func (t *table) done(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.waiting != nil {
		close(t.waiting)
		t.waiting = nil
	}
	t.ended = append(t.ended, p)
	var kept int64
	for i := len(t.ended) - 1; i >= 0; i-- {
		kept += t.ended[i].out.size()
		over := len(t.ended)-i > maxEnded || kept > maxEndedOutput
		if !over || !t.ended[i].forgettable() || i == len(t.ended)-1 {
			continue
		}
		for _, old := range t.ended[:i+1] {
			if old.forgettable() {
				delete(t.byID, old.id)
			}
		}
		t.ended = slices.DeleteFunc(t.ended, t.forgotten)
		t.order = slices.DeleteFunc(t.order, t.forgotten)
		return
	}
}

// forgettable reports whether an ended process may be removed. Processes whose output nobody has collected stay; the
// host limits how many of those it runs at a time.
func (p *process) forgettable() bool {
	return p.id != agentapi.MainID && (!p.command.Backpressure || p.collected.Load())
}

func (t *table) forgotten(p *process) bool { return t.byID[p.id] != p }

// find returns a process by id.
func (t *table) find(id string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byID[id]; p != nil {
		return p, nil
	}
	return nil, answer.Errorf(agentapi.CodeNotFound, "the sandbox has no process %q", id)
}

// list returns all processes in the order in which they were started.
func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.order)
}

// idle returns a channel that is closed once no process runs.
func (t *table) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.waiting
	if waiting == nil {
		waiting = make(chan struct{})
		if t.running == 0 {
			close(waiting)
		} else {
			t.waiting = waiting
		}
	}
	return waiting
}
