package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/kernelapi"
)

const (
	// maxKept bounds the events of ended runs, which readers whose connection broke read again.
	maxKept = 64 << 20
	// maxRuns bounds the runs that are known.
	maxRuns = kernelapi.MaxContexts*(kernelapi.MaxQueue+1) + 64
)

// Supervisor has the contexts of a sandbox. It is safe for concurrent use.
type Supervisor struct {
	dir string

	mu       sync.Mutex
	contexts map[string]*interpreterContext // guarded by mu
	runs     map[string]*run                // guarded by mu
	order    []*run                         // guarded by mu; the same, by their start
}

// New returns a supervisor without contexts, which keeps files of interpreters in dir.
func New(dir string) *Supervisor {
	return &Supervisor{dir: dir, contexts: map[string]*interpreterContext{}, runs: map[string]*run{}}
}

// Close ends all contexts.
func (s *Supervisor) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts {
		c.close()
	}
	clear(s.contexts)
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func notFound(id string) error {
	return &kernelapi.Error{Code: kernelapi.CodeNotFound, Message: fmt.Sprintf("context %q does not exist in the sandbox", id)}
}

// open returns the context of spec's ID, and makes it if it does not exist. It returns when the
// interpreter has started.
func (s *Supervisor) open(spec kernelapi.ContextSpec) (*interpreterContext, error) {
	name, err := language(spec.Language)
	if err != nil {
		return nil, err
	}
	if spec.Language = name; spec.ID == "" {
		spec.ID = name
	}
	if !validID.MatchString(spec.ID) {
		return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: fmt.Sprintf("%q is not an ID of a context", spec.ID)}
	}
	if spec.Limits.Negative() {
		return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: "a limit of the context is negative"}
	}
	if spec.Cwd == "" {
		spec.Cwd, _ = os.Getwd() // "" starts it in the same directory
	}
	s.mu.Lock()
	c, found := s.contexts[spec.ID]
	if !found {
		if len(s.contexts) >= kernelapi.MaxContexts {
			s.mu.Unlock()
			return nil, &kernelapi.Error{Code: kernelapi.CodeTooMany, Message: fmt.Sprintf("the sandbox has %d contexts already; delete some", kernelapi.MaxContexts)}
		}
		c = newContext(s.dir, spec)
		s.contexts[spec.ID] = c
		go c.work()
	}
	s.mu.Unlock()
	<-c.ready
	if c.failed != nil {
		s.remove(c)
		return nil, c.failed
	}
	return c, nil
}

// remove ends a context.
func (s *Supervisor) remove(c *interpreterContext) {
	s.mu.Lock()
	if s.contexts[c.spec.ID] == c {
		delete(s.contexts, c.spec.ID)
	}
	s.mu.Unlock()
	c.close()
}

// find returns a context by ID.
func (s *Supervisor) find(id string) (*interpreterContext, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.contexts[id]
	if !ok {
		return nil, notFound(id)
	}
	return c, nil
}

// list returns all contexts, by creation.
func (s *Supervisor) list() []kernelapi.Context {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.contexts))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *interpreterContext) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.spec.ID, b.spec.ID))
	})
	views := make([]kernelapi.Context, 0, len(all))
	for _, c := range all {
		views = append(views, c.view())
	}
	return views
}

// begin returns the run of an ID, and starts it if it does not exist.
func (s *Supervisor) begin(id string, spec *kernelapi.Run) (*run, error) {
	if r := s.run(id); r != nil {
		return r, nil
	}
	if !validID.MatchString(id) {
		return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: fmt.Sprintf("%q is not an ID of a run", id)}
	}
	if len(spec.Code) > kernelapi.MaxCode {
		return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: fmt.Sprintf("the code has %d bytes; at most %d are allowed", len(spec.Code), kernelapi.MaxCode)}
	}
	if spec.Limits.Negative() {
		return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: "a limit of the code is negative"}
	}
	c, err := s.contextOf(spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[id]; r != nil {
		return r, nil
	}
	s.forget()
	if len(s.runs) >= maxRuns {
		return nil, &kernelapi.Error{Code: kernelapi.CodeTooMany, Message: fmt.Sprintf("%d runs are under way", maxRuns)}
	}
	r := newRun(id, spec)
	if err := c.enqueue(r); err != nil {
		r.unread.Stop()
		return nil, err
	}
	s.runs[id] = r
	s.order = append(s.order, r)
	return r, nil
}

// contextOf returns the context in which a run executes.
func (s *Supervisor) contextOf(spec *kernelapi.Run) (*interpreterContext, error) {
	if spec.Context != "" {
		c, err := s.find(spec.Context)
		if err == nil {
			<-c.ready
		}
		return c, err
	}
	return s.open(kernelapi.ContextSpec{Language: cmp.Or(spec.Language, "python")})
}

// run returns a run by ID, nil if it does not exist.
func (s *Supervisor) run(id string) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

// forget drops the oldest ended runs beyond the bounds; s.mu is locked.
func (s *Supervisor) forget() {
	kept, count := 0, 0
	for i, r := range slices.Backward(s.order) {
		bytes, ended := r.size()
		if !ended {
			continue
		}
		if kept, count = kept+bytes, count+1; kept > maxKept || count > 64 {
			delete(s.runs, r.id)
			s.order = slices.Delete(s.order, i, i+1)
		}
	}
}

// asError returns err as the error that a caller gets.
func asError(err error) *kernelapi.Error {
	var known *kernelapi.Error
	if errors.As(err, &known) {
		return known
	}
	return &kernelapi.Error{Code: kernelapi.CodeInternal, Message: shorten(err.Error(), 4<<10)}
}
