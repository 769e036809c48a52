package creation

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// UpdateRequest says what to change of a sandbox; nil fields stay.
type UpdateRequest struct {
	// TTL limits the life of the sandbox from now on, whatever its state; 0 means no limit.
	TTL *time.Duration
	// CheckpointInterval is the time between automatic checkpoints; 0 switches them off.
	CheckpointInterval *time.Duration
}

// CheckUpdate checks the fields; errors name the field as on the wire.
func (c *Config) CheckUpdate(req *UpdateRequest) error {
	if req.TTL != nil {
		if err := c.Shortest.CheckTTL(*req.TTL); err != nil {
			return err
		}
	}
	if req.CheckpointInterval != nil {
		return sandbox.CheckCheckpointInterval(*req.CheckpointInterval)
	}
	return nil
}

// ResumeRequest says how a paused sandbox is brought back.
type ResumeRequest struct {
	// Memory is the policy if its memory cannot be restored.
	Memory sandbox.MemoryPolicy
	// WaitForQuota bounds the time for which the request may wait for capacity, as in a [Request].
	WaitForQuota time.Duration
}
