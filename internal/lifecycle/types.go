package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/sandbox"
)

// CreateRequest asks for a sandbox.
type CreateRequest = creation.Request

// ForkRequest says what children to make of a sandbox.
type ForkRequest = creation.ForkRequest

// ResumeRequest says how a paused sandbox is brought back.
type ResumeRequest struct {
	// Memory is the policy if its memory cannot be restored.
	Memory sandbox.MemoryPolicy
	// WaitForQuota bounds the time for which the request may wait for capacity, as in a
	// [CreateRequest].
	WaitForQuota time.Duration
}

// ForkResult is the result of a child: Err is nil when Sandbox runs. A child that was recorded and
// then failed has both.
type ForkResult struct {
	Sandbox sandbox.Sandbox
	Err     error
}

// Filter selects sandboxes for [Service.List].
type Filter = sandbox.Filter
