package client

import (
	"time"

	"github.com/modbox/modbox/client/wire"
)

// State says where a sandbox is in its life.
type State = wire.State

// The states, in the order of a life.
const (
	Provisioning = wire.Provisioning
	Running      = wire.Running
	Pausing      = wire.Pausing
	Paused       = wire.Paused
	Resuming     = wire.Resuming
	Destroying   = wire.Destroying
	Destroyed    = wire.Destroyed
	Failed       = wire.Failed
)

// Sandbox is one sandbox as the server saw it when it answered.
type Sandbox = wire.Sandbox

// Cause is why a sandbox ended.
type Cause = wire.Cause

// Resources are limits as Kubernetes quantities: memory "512Mi", cpu "500m" or
// "2", disk "2Gi". Empty fields of a request get the image's or server's default.
type Resources = wire.Resources

// CreateOptions says what sandbox to make; the zero value is the default image with default limits.
type CreateOptions struct {
	// Name is the caller's own identifier; the server makes one up when it is empty.
	// The same create with the name of a live sandbox answers that one.
	Name    string
	Image   string // e.g. "modbox/code-exec"
	ImageID string // of an image, or of one of the catalogue, whose defaults count then
	// Snapshot, instead of an image, is an id, name, name:tag or @workspace/name:tag.
	Snapshot string
	Env      map[string]string
	Labels   map[string]string
	// TTL is how long it may live, whole seconds; 0 is the image's default.
	TTL       time.Duration
	Resources Resources
	// Timeouts are the clocks beside the TTL.
	Timeouts Timeouts
	// CheckpointInterval is the time between automatic checkpoints, 1 minute to 24 hours in
	// whole seconds; 0 means none.
	CheckpointInterval time.Duration
	// Network is none unless asked for.
	Network Network
	// URLAccess names the credential for the management routes on its own URL; "" is [URLKey].
	URLAccess URLAccess
	// AptPackages are Debian packages ("ffmpeg", "curl=8.14*") and NpmPackages npm
	// packages ("typescript@5") to have installed in it before it runs. The server
	// keeps what comes out for the next sandbox with the same ones.
	AptPackages, NpmPackages []string
	// Description and Metadata are your own words about it.
	Description string
	Metadata    map[string]string
	// Command is started as an execution, as Execution says, as soon as the sandbox
	// runs; with OneShot the sandbox ends with it. Executions lists it at once.
	Command   *Command
	Execution ExecutionOptions
	OneShot   bool
	// Replace ends a live sandbox of the same name first.
	Replace bool
	// WaitUpTo, when not 0, makes the call answer only when the sandbox runs or has
	// ended, or this time is over; at most 10 minutes.
	WaitUpTo time.Duration
	// WaitForQuota bounds the time for which the server waits for room in the workspace's quota;
	// at most 10 minutes. 0 answers QuotaExceeded at once.
	WaitForQuota time.Duration
	// IdempotencyKey makes repeated creates one; empty: a new one for this call.
	IdempotencyKey string
}

// ListOptions selects sandboxes; the zero value selects all that have not ended.
type ListOptions struct {
	States []State
	Name   string
	Labels map[string]string
	// SnapshotID is of what they were made from.
	SnapshotID string
}

// Command is a command to run. Exactly one of Argv and Shell is set.
type Command struct {
	Argv  []string // program and arguments
	Shell string   // a line for the shell
	Cwd   string
	Env   map[string]string
	User  string
	// Stdin is what the command reads, for Exec and Stream; nil is /dev/null.
	Stdin []byte
	// Timeout ends the command; 0 is the server's default.
	Timeout time.Duration
	// MaxOutput is how many bytes of each of stdout and stderr Exec keeps; 0 is the server's default.
	MaxOutput int64
}

// ExecResult is how a command ended, and its output.
type ExecResult struct {
	ExitCode        int    `json:"exit_code"`
	Signal          int    `json:"signal,omitempty"`
	TimedOut        bool   `json:"timed_out"`
	Stdout          []byte `json:"stdout"`
	Stderr          []byte `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	DurationMS      int64  `json:"duration_ms"`
}

// Exit is how a streamed command ended.
type Exit struct {
	ExitCode   int   `json:"exit_code"`
	Signal     int   `json:"signal,omitempty"`
	TimedOut   bool  `json:"timed_out,omitempty"`
	DurationMS int64 `json:"duration_ms"`
}

// FileInfo describes a path in a sandbox.
type FileInfo = wire.FileInfo

// WriteOptions say how a file is written.
type WriteOptions struct {
	Mode    uint32 // permission bits of a new file; 0 is 0644
	User    string // owner of a new file
	Parents bool   // make missing parent directories
}

// Event is something that happened to a sandbox.
type Event = wire.Event

// EventsOptions selects events; the zero value selects all, oldest first.
type EventsOptions struct {
	AfterSeq   int64 // only events with a larger Seq
	Descending bool
}

// Stats is a moment's use of a sandbox. Fields the host cannot tell are 0.
type Stats = wire.Stats

// Image is an image that sandboxes can be made from.
type Image = wire.Image

// Token is an API token as listed; its secret is shown only once, by CreateToken.
type Token = wire.Token

// NewToken is a token just made.
type NewToken = wire.NewToken

// Identity is who a token speaks for.
type Identity = wire.Whoami

// Version is what a server says about itself.
type Version = wire.Version
