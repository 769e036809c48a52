package modbox

import (
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestStatusOfARemoval: the status does not change when the removal is complete.
func TestStatusOfARemoval(t *testing.T) {
	for _, code := range sandbox.Causes {
		sb := sandbox.Sandbox{State: sandbox.Destroying, Cause: &sandbox.Cause{Code: code}}
		during := statusOf(&sb)
		sb.State = code.Final()
		if after := statusOf(&sb); during != after {
			t.Errorf("a sandbox with cause %s is %s while it is removed, then %s", code, during, after)
		}
	}
}
