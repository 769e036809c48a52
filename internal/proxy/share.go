package proxy

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// workspaceShare is the part of all requests that those to the sandboxes of one
// workspace may be.
const workspaceShare = 4

// share bounds the requests to sandboxes that are under way: they need no token, and
// must leave connections for the API and for the sandboxes of other workspaces.
type share struct {
	max, perWorkspace int

	mu         sync.Mutex
	all        int                         // guarded by mu
	workspaces map[sandbox.WorkspaceID]int // guarded by mu
}

func newShare(max int) *share {
	return &share{max: max, perWorkspace: (max + workspaceShare - 1) / workspaceShare, workspaces: map[sandbox.WorkspaceID]int{}}
}

// enter begins a request to a sandbox of a workspace, which ends with leave.
func (s *share) enter(ws sandbox.WorkspaceID) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= s.max:
		return nil, sandbox.Errorf(sandbox.Unavailable, "%d requests to sandboxes of this server are under way, which is the maximum", s.max)
	case s.workspaces[ws] >= s.perWorkspace:
		return nil, sandbox.Errorf(sandbox.Unavailable, "%d requests to sandboxes of this workspace are under way, which is the maximum", s.perWorkspace)
	}
	s.all++
	s.workspaces[ws]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.workspaces[ws]--; s.workspaces[ws] == 0 {
			delete(s.workspaces, ws)
		}
	}, nil
}
