package guest

import (
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// CheckLimits returns an error for limits of a command that are higher than the limits of its
// sandbox, which hold in any case. Errors: Invalid, naming the field.
func CheckLimits(l agentapi.Limits, r sandbox.Resources) error {
	if l.MemoryBytes > r.MemoryBytes {
		return sandbox.InvalidField("limits.memory", "must be at most %s, the memory of the sandbox", sandbox.ShowBytes(r.MemoryBytes))
	}
	if l.FileSizeBytes > r.DiskBytes {
		return sandbox.InvalidField("limits.file_size", "must be at most %s, the disk of the sandbox", sandbox.ShowBytes(r.DiskBytes))
	}
	return nil
}
