package proxy

import (
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestShare(t *testing.T) {
	s := newShare(8)
	var leave []func()
	for _, c := range []struct {
		workspace sandbox.WorkspaceID
		want      int // of 5 tries
	}{{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"e", 0}} {
		n := 0
		for range 5 {
			if end, err := s.enter(c.workspace); err == nil {
				n, leave = n+1, append(leave, end)
			} else if sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Error(err)
			}
		}
		if n != c.want {
			t.Errorf("%d requests to workspace %s were let through, want %d", n, c.workspace, c.want)
		}
	}
	for _, end := range leave {
		end()
	}
	if s.all != 0 || len(s.workspaces) != 0 {
		t.Errorf("after all ended %d are left, of workspaces %v", s.all, s.workspaces)
	}
}
