package guest

import (
	"strings"

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

// checkMetadata checks the metadata of a file. A key with "=" would not survive a pause without memory. Errors:
// Invalid, naming the field.
func checkMetadata(metadata map[string]string) error {
	for key, value := range metadata {
		if key == "" || len(key) > agentapi.MaxMetadataKey || !sandbox.IsText(key) || !sandbox.IsText(value) || strings.Contains(key, "=") {
			return sandbox.InvalidField(sandbox.FieldOf("metadata", key), "keys and values must be UTF-8 without NUL, keys have 1 to %d bytes without =", agentapi.MaxMetadataKey)
		}
	}
	if exceedsMetadata(metadata) {
		return sandbox.InvalidField("metadata", "must hold at most %d entries and %d bytes", agentapi.MaxMetadata, agentapi.MaxMetadataBytes)
	}
	return nil
}

// exceedsMetadata reports whether the metadata of a file is beyond its limits in sum.
func exceedsMetadata(metadata map[string]string) bool {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return len(metadata) > agentapi.MaxMetadata || size > agentapi.MaxMetadataBytes
}

// limited returns the description of a file without metadata beyond the limits, which only a hostile agent sends.
func limited(info agentapi.FileInfo) agentapi.FileInfo {
	if exceedsMetadata(info.Metadata) {
		info.Metadata = nil
	}
	return info
}
