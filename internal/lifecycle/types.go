package lifecycle

import (
	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/sandbox"
)

// CreateRequest asks for a sandbox.
type CreateRequest = creation.Request

// ForkRequest says what children to make of a sandbox.
type ForkRequest = creation.ForkRequest

// UpdateRequest says what to change of a sandbox.
type UpdateRequest = creation.UpdateRequest

// ResumeRequest says how a paused sandbox is brought back.
type ResumeRequest = creation.ResumeRequest

// ForkResult is the result of a child: Err is nil when Sandbox runs. A child that was recorded and
// then failed has both.
type ForkResult struct {
	Sandbox sandbox.Sandbox
	Err     error
}

// Filter selects sandboxes for [Service.List].
type Filter = sandbox.Filter
