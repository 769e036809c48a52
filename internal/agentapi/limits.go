package agentapi

import (
	"fmt"
	"time"
)

// Limits are limits of one command and all its processes, tighter than the limits of the sandbox. A
// limit of 0 is none. The agent kills the command with its processes when they exceed one.
type Limits struct {
	// MemoryBytes bounds the sum of the resident memory of the processes.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPU bounds the sum of the processor time of the processes.
	CPU time.Duration `json:"cpu,omitempty"`
	// FileSizeBytes bounds the size of each file that a process writes.
	FileSizeBytes int64 `json:"file_size_bytes,omitempty"`
	// Processes bounds how many processes there are at a time, the command itself included.
	Processes int `json:"processes,omitempty"`
}

// IsZero reports whether there is no limit.
func (l Limits) IsZero() bool { return l == Limits{} }

// LimitName names one of the [Limits] as the cause of a command's end.
type LimitName string

// The limits that end commands.
const (
	LimitMemory    LimitName = "memory"
	LimitCPU       LimitName = "cpu"
	LimitFileSize  LimitName = "file_size"
	LimitProcesses LimitName = "processes"
)

// check returns an error for a name that no agent of ours sends.
func (n LimitName) check() error {
	switch n {
	case "", LimitMemory, LimitCPU, LimitFileSize, LimitProcesses:
		return nil
	default:
		return fmt.Errorf("%w: it names a limit that does not exist", ErrBadAnswer)
	}
}
