package remote

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// IsUnclear reports whether a box may have been made by a call without answer.
func (d *Driver) IsUnclear(id sandbox.ID) bool { return isUnclear(d, id) }

// SetCancelTimeout sets the timeout of canceled calls until reset is called. No driver may exist.
func SetCancelTimeout(d time.Duration) (reset func()) {
	before := cancelTimeout
	cancelTimeout = d
	return func() { cancelTimeout = before }
}

var (
	NewConn = newConn
	Splice  = splice
)
