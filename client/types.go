package client

import (
	"time"

	"github.com/modbox/modbox/client/wire"
)

// State is a state in the life of a sandbox.
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

// Sandbox is the state of a sandbox at the time of the answer.
type Sandbox = wire.Sandbox

// Cause is the reason of a sandbox's end.
type Cause = wire.Cause

// Resources are limits as Kubernetes quantities: memory "512Mi", cpu "500m" or
// "2", disk "2Gi". Empty fields of a request get the image's or server's default.
type Resources = wire.Resources

// CreateOptions describe a sandbox to make; the zero value is the default image with default
// limits.
type CreateOptions struct {
	// Name is the caller's own identifier; the server makes a name up when it is empty. A repeated
	// create with the name of a live sandbox returns that sandbox.
	Name    string
	Image   string // e.g. "modbox/code-exec"
	ImageID string // of an image, or of an image of the catalogue with its defaults
	// Snapshot, instead of an image, is an id, name, name:tag or @workspace/name:tag.
	Snapshot string
	Env      map[string]string
	Labels   map[string]string
	// TTL bounds its life, in whole seconds; 0 is the image's default.
	TTL       time.Duration
	Resources Resources
	// Timeouts are the time limits other than the TTL.
	Timeouts Timeouts
	// CheckpointInterval is the time between automatic checkpoints, 1 minute to 24 hours in
	// whole seconds; 0 means none.
	CheckpointInterval time.Duration
	// Network is the network; the zero value is none.
	Network Network
	// URLAccess names the credential for the management routes on its own URL; "" is [URLKey].
	URLAccess URLAccess
	// AptPackages are Debian packages ("ffmpeg", "curl=8.14*"), NpmPackages npm packages
	// ("typescript@5") and PipPackages Python packages ("requests==2.32.*") to install before it runs. The server caches the result for the next sandbox
	// with the same packages.
	AptPackages, NpmPackages, PipPackages []string
	// Description and Metadata are free text and data of the caller.
	Description string
	Metadata    map[string]string
	// Command starts as an execution, configured by Execution, as soon as the sandbox runs; with
	// OneShot the sandbox ends with it. [Executions.List] lists it at once.
	Command   *Command
	Execution ExecutionOptions
	OneShot   bool
	// Replace ends a live sandbox of the same name first.
	Replace bool
	// WaitUpTo, unless 0, makes the call return only when the sandbox runs or has ended, or after this
	// time; at most 10 minutes.
	WaitUpTo time.Duration
	// WaitForQuota bounds the time for which the server waits for the workspace's quota; at most 10
	// minutes. 0 returns QuotaExceeded at once.
	WaitForQuota time.Duration
	// IdempotencyKey identifies repetitions of the same create; if empty, the call makes a new key.
	IdempotencyKey string
	// Made, unless nil, is set to whether the call made the sandbox. It is false for the live sandbox of
	// the same request, also when that is the call's own because the answer to a first attempt was lost.
	Made *bool
}

// ListOptions selects sandboxes; the zero value selects all that have not ended.
type ListOptions struct {
	States []State
	Name   string
	Labels map[string]string
	// SnapshotID selects the sandboxes made from a snapshot.
	SnapshotID string
}

// Command is a command to run. Exactly one of Argv, Shell and Program is set.
type Command struct {
	Argv  []string // program and arguments
	Shell string   // a command line for the shell
	// Program is a program that runs from its file, for Exec and Stream.
	Program *Program
	Cwd     string
	Env     map[string]string
	User    string
	// Stdin is the input of the command, for Exec and Stream; nil is /dev/null.
	Stdin []byte
	// Timeout ends the command; 0 is the server's default.
	Timeout time.Duration
	// Limits are limits of the command and its processes, tighter than the sandbox's.
	Limits Limits
	// MaxOutput bounds the bytes of stdout and of stderr that Exec returns; 0 is the server's default.
	MaxOutput int64
}

// Program is a program that the server writes to a file, and runs by the interpreter of its language.
type Program = wire.Program

// Limits are limits of one command and all its processes; a limit that is not set is none. A command
// that exceeds one is killed, and LimitExceeded of its result names it.
type Limits = wire.ExecLimits

// The limits of a command, as LimitExceeded names them.
const (
	LimitMemory    = "memory"
	LimitCPU       = "cpu"
	LimitFileSize  = "file_size"
	LimitProcesses = "processes"
)

// ExecResult is the exit of a command and its output.
type ExecResult struct {
	ExitCode        int    `json:"exit_code"`
	Signal          int    `json:"signal,omitempty"`
	TimedOut        bool   `json:"timed_out"`
	LimitExceeded   string `json:"limit_exceeded,omitempty"`
	Stdout          []byte `json:"stdout"`
	Stderr          []byte `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	DurationMS      int64  `json:"duration_ms"`
	// Scan has the findings of the scan that the policy of the workspace demands; nil without a scan.
	Scan *CodeScan `json:"scan,omitempty"`
}

// Exit is the exit of a streamed command.
type Exit struct {
	ExitCode      int    `json:"exit_code"`
	Signal        int    `json:"signal,omitempty"`
	TimedOut      bool   `json:"timed_out,omitempty"`
	LimitExceeded string `json:"limit_exceeded,omitempty"`
	DurationMS    int64  `json:"duration_ms"`
}

// FileInfo describes a path in a sandbox.
type FileInfo = wire.FileInfo

// WriteOptions configure the writing of a file.
type WriteOptions struct {
	Mode     uint32            // permission bits of a new file; 0 is 0644
	User     string            // owner of a new file
	Parents  bool              // make missing parent directories
	Metadata map[string]string // of the file, which loses what it had
}

// Event is an event of a sandbox.
type Event = wire.Event

// EventsOptions selects events; the zero value selects all, oldest first.
type EventsOptions struct {
	AfterSeq   int64 // only events with a larger Seq
	Descending bool
}

// Stats is the present use of a sandbox. Fields that the host cannot measure are 0.
type Stats = wire.Stats

// Image is an image that sandboxes can be made from.
type Image = wire.Image

// Token is an API token; only [Tokens.Create] returns its secret.
type Token = wire.Token

// NewToken is a new token with its secret.
type NewToken = wire.NewToken

// Identity is the identity of a token: its user, workspace and role.
type Identity = wire.Whoami

// SSH describes the SSH server: its address and host key.
type SSH = wire.SSH

// SSHHostKey is a host key of the SSH server.
type SSHHostKey = wire.SSHHostKey

// Version is the version and the capabilities of a server.
type Version = wire.Version
