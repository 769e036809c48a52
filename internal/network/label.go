package network

import (
	"context"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// portURL is a published port in the index of labels.
type portURL struct {
	box  *box.Box
	port sandbox.PublishedPort
	// ctx ends when the label stops leading to the port, or the access of the port changes.
	ctx    context.Context
	cancel context.CancelFunc
}

// leadsTo reports whether u leads to the port of p, for the same visitors.
func (u *portURL) leadsTo(p sandbox.PublishedPort) bool {
	return u.port.Port == p.Port && u.port.Label == p.Label && u.port.Access == p.Access
}

// labels is the index of the published ports of all live sandboxes.
type labels struct {
	mu      sync.RWMutex
	byLabel map[string]*portURL     // guarded by mu
	byBox   map[*box.Box][]*portURL // guarded by mu; without boxes that publish nothing
}

func newLabels() labels {
	return labels{byLabel: map[string]*portURL{}, byBox: map[*box.Box][]*portURL{}}
}

// Publish replaces the labels of a box in the index by the labels of its published ports. It cuts
// off the users of a label that disappears or becomes private.
//
// Preconditions: the lock of b is held.
func (s *Service) Publish(b *box.Box) { s.labels.replace(b, b.View().Sandbox.Published) }

// Unpublish removes the labels of a box from the index and cuts off their users.
func (s *Service) Unpublish(b *box.Box) { s.labels.replace(b, nil) }

// replace replaces the labels of b by the labels of ports.
func (x *labels) replace(b *box.Box, ports []sandbox.PublishedPort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []*portURL
	for _, p := range ports {
		switch old := x.byLabel[p.Label]; {
		case old == nil || old.box == b && !old.leadsTo(p):
		case old.box == b:
			list = append(list, old)
			continue
		default: // two labels of 100 random bits are the same: the box that was first keeps it
			continue
		}
		u := &portURL{box: b, port: p}
		u.ctx, u.cancel = context.WithCancel(context.Background())
		list = append(list, u)
	}
	for _, old := range x.byBox[b] {
		if !slices.Contains(list, old) {
			delete(x.byLabel, old.port.Label)
			old.cancel() // functions that wait for the context run in goroutines of their own
		}
	}
	for _, u := range list {
		x.byLabel[u.port.Label] = u
	}
	if len(list) == 0 {
		delete(x.byBox, b)
		return
	}
	x.byBox[b] = list
}

// ByPortLabel returns the sandbox that publishes a port with that label, and the port; ctx ends
// when the label does not lead there any more, or the port's access changes. Every request to a
// port's URL calls it, so it reads memory only: guesses of labels cost next to nothing. Errors:
// NotFound, also when the sandbox has ended; with the reason [sandbox.Elsewhere] if another server may have it.
func (s *Service) ByPortLabel(label string) (sb sandbox.Sandbox, port sandbox.PublishedPort, ctx context.Context, err error) {
	s.labels.mu.RLock()
	u := s.labels.byLabel[label]
	s.labels.mu.RUnlock()
	if u == nil {
		err := sandbox.Errorf(sandbox.NotFound, "there is no published port with this label")
		if s.deps.Owner.Ranges() != sandbox.AllRanges {
			err = sandbox.Somewhere("%s", err.Message)
		}
		return sandbox.Sandbox{}, sandbox.PublishedPort{}, nil, err
	}
	return u.box.Sandbox(), u.port, u.ctx, nil
}
