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

// checkMetadata checks the metadata of a file. Errors: Invalid, naming the field.
func checkMetadata(metadata map[string]string) error {
	size := 0
	for key, value := range metadata {
		if key == "" || len(key) > agentapi.MaxMetadataKey || !sandbox.IsText(key) || !sandbox.IsText(value) {
			return sandbox.InvalidField(sandbox.FieldOf("metadata", key), "keys and values must be UTF-8 without NUL, keys have 1 to %d bytes", agentapi.MaxMetadataKey)
		}
		size += len(key) + len(value)
	}
	if len(metadata) > agentapi.MaxMetadata || size > agentapi.MaxMetadataBytes {
		return sandbox.InvalidField("metadata", "must hold at most %d entries and %d bytes", agentapi.MaxMetadata, agentapi.MaxMetadataBytes)
	}
	return nil
}
