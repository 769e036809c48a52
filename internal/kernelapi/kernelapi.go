// Package kernelapi has the requests of the host to the supervisor of kernels inside a sandbox:
// HTTP/1.1 over a Unix socket in the sandbox. A context is an interpreter that keeps its
// state between runs; a run is one execution of code in a context, and has events.
//
//	POST   /contexts                  ContextSpec -> Context; an ID that exists is answered again
//	GET    /contexts                  -> []Context, by creation
//	DELETE /contexts/{id}             ends the context and its processes
//	POST   /contexts/{id}/interrupt   interrupts the run that executes
//	POST   /contexts/{id}/restart     -> Context, with a new interpreter
//	POST   /contexts/{id}/modules     Modules; the interpreter loads them
//	PUT    /environment               Environment; for the supervisor and all contexts
//	PUT    /environment/later         Environment; for interpreters that start later
//	POST   /runs/{id}?after=N         Run -> events, one JSON object a line, from number N+1 on
//	DELETE /runs/{id}                 interrupts the run, also before it executes
//
// Starting a run whose ID exists reads its events again, so that a caller whose connection broke
// can continue. A run without readers is interrupted after [ReaderGrace].
package kernelapi

import (
	"time"
)

// Directory has the supervisor's files inside the sandbox, in memory: they end with the processes
// that use them.
const Directory = "/dev/shm/.modbox-kernels"

// Socket is the name of the supervisor's socket in its directory.
const Socket = "socket"

const (
	// MaxContexts bounds the contexts of a sandbox.
	MaxContexts = 32
	// MaxQueue bounds the runs that wait for the same context.
	MaxQueue = 32
	// MaxCode bounds the code of a run, in bytes.
	MaxCode = 1 << 20
	// MaxRequest bounds the body of a request.
	MaxRequest = 8 << 20
	// MaxEvent bounds an event on the wire. Larger events have parts left out.
	MaxEvent = 4 << 20
	// MaxEvents bounds the sum of a run's events. Later events are dropped.
	MaxEvents = 16 << 20
	// ReaderGrace is how long a run may go on without readers.
	ReaderGrace = 30 * time.Second
	// StartTimeout bounds the start of an interpreter.
	StartTimeout = time.Minute
)

// Environment has environment variables by name.
type Environment map[string]string

// Modules are names of modules of Python.
type Modules []string

// ContextSpec describes a context to make.
type ContextSpec struct {
	// ID is 1 to 64 characters of [A-Za-z0-9_-].
	ID       string `json:"id"`
	Language string `json:"language"`
	// Cwd is the directory in which the interpreter starts; "" is the supervisor's.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the supervisor's environment.
	Env map[string]string `json:"env,omitempty"`
	// Limits are the limits of runs that have none of their own.
	Limits Limits `json:"limits,omitzero"`
}

// Limits are limits of a run, which hold while it executes. Memory and processes count what the context has from
// earlier runs, its interpreter included; processor time counts from the start of the run. A limit of 0 is none.
type Limits struct {
	MemoryBytes   int64         `json:"memory_bytes,omitempty"`
	CPU           time.Duration `json:"cpu,omitempty"`
	FileSizeBytes int64         `json:"file_size_bytes,omitempty"`
	Processes     int           `json:"processes,omitempty"`
}

// Negative reports whether a limit is negative.
func (l Limits) Negative() bool {
	return l.MemoryBytes < 0 || l.CPU < 0 || l.FileSizeBytes < 0 || l.Processes < 0
}

// LimitName names one of the [Limits].
type LimitName string

// The limits.
const (
	LimitMemory    LimitName = "memory"
	LimitCPU       LimitName = "cpu"
	LimitFileSize  LimitName = "file_size"
	LimitProcesses LimitName = "processes"
)

// Context is an interpreter.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
	// State is "idle", "busy" while code executes, or "ended" if the interpreter ended by itself:
	// the next run starts it again, without its state.
	State     State     `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// Restarts is how many interpreters the context had before this one.
	Restarts int `json:"restarts"`
	// Limits are the limits of its specification. An old supervisor ignores them, and has none here.
	Limits Limits `json:"limits,omitzero"`
}

// State is the state of a context.
type State string

// The states.
const (
	Idle  State = "idle"
	Busy  State = "busy"
	Ended State = "ended"
)

// Run is code to execute.
type Run struct {
	// Context is the ID of the context. If it is empty, Language names the default context of a
	// language, which is made when it is missing and whose ID is the language.
	Context  string `json:"context,omitempty"`
	Language string `json:"language,omitempty"`
	Code     string `json:"code"`
	// Timeout bounds the execution; waiting for runs before it does not count. 0 is no bound.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Limits take the place of the limits of the context.
	Limits Limits `json:"limits,omitzero"`
}

// EventType is the type of an event.
type EventType string

// The types of events. Each run has one Started first and one End last.
const (
	Started EventType = "started"
	Stdout  EventType = "stdout"
	Stderr  EventType = "stderr"
	// Result is a value in one or more formats: the value of the last expression (Main), or
	// something that the code displayed.
	Result EventType = "result"
	// Failure is an error of the code.
	Failure EventType = "error"
	End     EventType = "end"
)

// Event is something that happened in a run.
type Event struct {
	Type EventType `json:"type"`
	// Seq counts the events of a run from 1.
	Seq int `json:"seq"`

	// Context and Restarted are of Started. Restarted is whether a new interpreter had to be
	// started for a context that existed, so that its state is lost.
	Context   string `json:"context,omitempty"`
	Restarted bool   `json:"restarted,omitempty"`
	// Limited is of Started: the limits of the run are enforced. An old supervisor ignores them.
	Limited bool `json:"limited,omitempty"`

	// Text is of Stdout and Stderr.
	Text string `json:"text,omitempty"`

	// The following are of Result. Data has the value by MIME type: strings for text, base64 for
	// images and PDF, any JSON for types that end in "json". Omitted has the MIME types that were
	// too large. A result with Update replaces the earlier result with the same DisplayID.
	Data      Formats `json:"data,omitempty"`
	Main      bool    `json:"main,omitempty"`
	DisplayID string  `json:"display_id,omitempty"`
	Update    bool    `json:"update,omitempty"`
	Omitted   Lines   `json:"omitted,omitempty"`

	// The following are of Failure.
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback Lines  `json:"traceback,omitempty"`

	// The following are of End. Truncated is whether events were dropped.
	Status         Status        `json:"status,omitempty"`
	ExecutionCount int           `json:"execution_count,omitempty"`
	Duration       time.Duration `json:"duration,omitempty"`
	Truncated      bool          `json:"truncated,omitempty"`
	// Limit is of End: the limit that the run exceeded, and that interrupted it or ended its interpreter.
	Limit LimitName `json:"limit,omitempty"`
}

// Status is how a run ended.
type Status string

// The statuses.
const (
	OK          Status = "ok"
	Failed      Status = "error"
	Interrupted Status = "interrupted"
	TimedOut    Status = "timed_out"
	// Lost is for a run whose interpreter ended or was restarted.
	Lost Status = "lost"
)

// Code classifies an error of the supervisor.
type Code string

// The codes.
const (
	CodeInvalid      Code = "invalid"
	CodeNotFound     Code = "not_found"
	CodeTooMany      Code = "too_many"
	CodeNotInstalled Code = "not_installed"
	CodeInternal     Code = "internal"
)

// Error is the answer to a request that was refused or failed.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Field is the member of the request that is at fault; "" for none.
	Field string `json:"field,omitempty"`
}

func (e *Error) Error() string { return e.Message }
