package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/sandbox"
)

// CreateRequest asks for a sandbox.
type CreateRequest = creation.Request

// ForkRequest says what children to make of a sandbox.
type ForkRequest struct {
	// Count of children, 1 to sandbox.ForkMax; 0 is 1, or as many as there are names.
	Count int
	// Names of the first children; those without get one made up.
	Names []string
	// Env is added to the parent's environment, Labels to its labels.
	Env    map[string]string
	Labels map[string]string
	// TTL counts from the fork; 0 is the parent's ttl, counted from the fork too.
	TTL time.Duration
	// Timeouts replace the parent's when not nil.
	Timeouts *sandbox.Timeouts
	// WaitForQuota bounds the time for which the request may wait for capacity for all children, as in
	// a [CreateRequest]. The parent goes on meanwhile.
	WaitForQuota time.Duration
}

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
