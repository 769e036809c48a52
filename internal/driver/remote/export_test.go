package remote

import "github.com/modbox/modbox/internal/sandbox"

// IsUnclear reports whether a box may have been made by a call without answer.
func (d *Driver) IsUnclear(id sandbox.ID) bool { return isUnclear(d, id) }
