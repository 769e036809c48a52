package snapshot

import (
	"testing"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReadersOfManyWorkspaces: requests for diffs, which wait for their turns, refuse no other workspace; others are bounded.
func TestReadersOfManyWorkspaces(t *testing.T) {
	s := New(Config{}, Deps{Work: background.New()})
	for name, x := range map[string]*readers{"snapshots": s.readers, "originals": s.originals, "diffs": s.diffs} {
		var last error
		for range readersMax + 1 {
			var end func()
			if end, last = x.begin(sandbox.NewWorkspaceID()); last == nil {
				defer end()
			}
		}
		if refused := sandbox.CodeOf(last) == sandbox.Unavailable; refused != (name != "diffs") {
			t.Errorf("%s: request %d: %v", name, readersMax+1, last)
		}
	}
	ws := sandbox.NewWorkspaceID()
	for range diffsOfWorkspace {
		if end, err := s.diffs.begin(ws); err != nil {
			t.Error(err)
		} else {
			defer end()
		}
	}
	if _, err := s.diffs.begin(ws); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("another diff of a workspace: %v", err)
	}
}
