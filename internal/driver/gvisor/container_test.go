package gvisor_test

import (
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor"
)

func TestCrowded(t *testing.T) {
	const limit = 512 << 20
	full := gvisor.Crowded(limit)
	for i, look := range []struct {
		free int64
		full bool
	}{{100 << 20, false}, {10 << 20, false}, {33 << 20, false}, {31 << 20, false}, {0, true}, {33 << 20, false}} {
		if got := full(limit - look.free); got != look.full {
			t.Errorf("look %d: full with %d MiB left = %v, want %v", i, look.free>>20, got, look.full)
		}
	}
}
