package command

import (
	"bytes"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// memoryMin suffices for the smallest interpreters.
	memoryMin = 16 << 20
	// processesMax is more than any sandbox may have.
	processesMax = 1 << 20
)

// Limits translates the limits of a request; nil is none. Errors: Invalid, naming the field.
func Limits(in *wire.ExecLimits) (out agentapi.Limits, err error) {
	if in == nil {
		return out, nil
	}
	if out.MemoryBytes, err = bytesOf("limits.memory", in.Memory, memoryMin); err != nil {
		return out, err
	}
	if out.FileSizeBytes, err = bytesOf("limits.file_size", in.FileSize, 1); err != nil {
		return out, err
	}
	if most := int(sandbox.TimeoutMax / time.Second); in.CPUSeconds < 0 || in.CPUSeconds > most {
		return out, sandbox.InvalidField("limits.cpu_seconds", "must be 1 to %d, or 0 for no limit", most)
	}
	if in.Processes < 0 || in.Processes > processesMax {
		return out, sandbox.InvalidField("limits.processes", "must be 1 to %d, or 0 for no limit", processesMax)
	}
	out.CPU, out.Processes = time.Duration(in.CPUSeconds)*time.Second, in.Processes
	return out, nil
}

// ShowLimits is the inverse of Limits.
func ShowLimits(l agentapi.Limits) *wire.ExecLimits {
	if l.IsZero() {
		return nil
	}
	out := &wire.ExecLimits{CPUSeconds: int(l.CPU / time.Second), Processes: l.Processes}
	if l.MemoryBytes > 0 {
		out.Memory = quantity.Bytes(l.MemoryBytes)
	}
	if l.FileSizeBytes > 0 {
		out.FileSize = quantity.Bytes(l.FileSizeBytes)
	}
	return out
}

// DecodeLimits reads the limits of a request that is not of /v1. Errors: as for Limits.
func DecodeLimits(data []byte) (agentapi.Limits, error) {
	var in wire.ExecLimits
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return agentapi.Limits{}, sandbox.InvalidField("limits", "must be an object with some of memory and file_size (strings), cpu_seconds and processes (whole numbers)")
	}
	return Limits(&in)
}

// bytesOf reads a quantity of bytes; "" is 0.
func bytesOf(field, s string, least int64) (int64, error) {
	n, err := quantity.Parse(field, s, (*resource.Quantity).Value)
	if err == nil && s != "" && n < least {
		err = sandbox.InvalidField(field, "must be at least %s", sandbox.ShowBytes(least))
	}
	return n, err
}
