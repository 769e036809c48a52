package wire

// State is a state in the life of a sandbox.
type State string

// The states, in the order of a life.
const (
	Provisioning State = "provisioning"
	Running      State = "running"
	Pausing      State = "pausing"
	Paused       State = "paused"
	Resuming     State = "resuming"
	Destroying   State = "destroying"
	Destroyed    State = "destroyed"
	Failed       State = "failed"
)

// Ended reports whether nothing can happen to the sandbox any more.
func (s State) Ended() bool { return s == Destroyed || s == Failed }

// ExecutionState is a state in the life of an execution.
type ExecutionState string

// The states of an execution.
const (
	ExecutionQueued    ExecutionState = "queued"
	ExecutionRunning   ExecutionState = "running"
	ExecutionCompleted ExecutionState = "completed" // it exited; a job with 0
	ExecutionFailed    ExecutionState = "failed"    // a job that exited with another code; or how it ended is not known
	ExecutionTimeout   ExecutionState = "timeout"
	ExecutionCancelled ExecutionState = "cancelled"
)

// Ended reports whether nothing can happen to the execution any more.
func (s ExecutionState) Ended() bool { return s != ExecutionQueued && s != ExecutionRunning }

// URLAccess names the credential that callers of the management routes on a sandbox's
// own URL, such as /modbox/api/exec, must present.
type URLAccess string

// The kinds of access to management routes.
const (
	// URLOpen is the sandbox's SANDBOX_API_KEY if it has one; else the URL is enough.
	URLOpen URLAccess = "open"
	// URLKey is the sandbox's SANDBOX_API_KEY or an API token that may use the sandbox.
	URLKey URLAccess = "key"
)

// PortAccess names the credential that visitors of a published port must present.
type PortAccess string

// The kinds of access to published ports.
const (
	PortPublic  PortAccess = "public"  // none beside the port's URL
	PortPrivate PortAccess = "private" // an API token or a signed link
)
