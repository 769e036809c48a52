package lookup

import (
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestReached(t *testing.T) {
	for _, tc := range []struct {
		state, want sandbox.State
		reached     bool
	}{
		{sandbox.Provisioning, sandbox.Running, false},
		{sandbox.Running, sandbox.Running, true},
		{sandbox.Paused, sandbox.Running, true},
		{sandbox.Resuming, sandbox.Running, false},
		{sandbox.Running, sandbox.Paused, false},
		{sandbox.Paused, sandbox.Pausing, true},
		{sandbox.Running, sandbox.Provisioning, true},
		{sandbox.Destroying, sandbox.Running, true},
		{sandbox.Destroying, sandbox.Destroyed, false},
		{sandbox.Failed, sandbox.Running, true},
		{sandbox.Destroyed, sandbox.Paused, true},
	} {
		if got := Reached(tc.state, tc.want); got != tc.reached {
			t.Errorf("Reached(%s, %s) = %v, want %v", tc.state, tc.want, got, tc.reached)
		}
	}
}
