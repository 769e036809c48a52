package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// ExecutionState is a state in the life of an execution.
type ExecutionState = wire.ExecutionState

// The states of an execution.
const (
	ExecutionQueued    = wire.ExecutionQueued
	ExecutionRunning   = wire.ExecutionRunning
	ExecutionCompleted = wire.ExecutionCompleted
	ExecutionFailed    = wire.ExecutionFailed
	ExecutionTimeout   = wire.ExecutionTimeout
	ExecutionCancelled = wire.ExecutionCancelled
)

// The kinds of executions.
const (
	KindExec = "exec" // any exit code is a success
	KindJob  = "job"  // it fails with a nonzero exit code
	KindMain = "main" // the image's own command, which starts with the sandbox; it cannot be started by a call
)

// Executions has the calls for executions.
type Executions struct{ *transport }

// Execution is a command in a sandbox whose record and output outlive it.
type Execution = wire.Execution

// OutputStream is the stream of an execution's output.
type OutputStream = wire.OutputStream

// ExecutionOptions configure an execution in addition to its Command. An execution ignores the
// command's Stdin and MaxOutput.
type ExecutionOptions struct {
	Kind string // KindExec when empty
	// Files are written before it starts, by path.
	Files []ExecutionFile
	// Stdin makes a stream for its input; StdinStreamID names a stream made by [Streams.Create].
	Stdin         bool
	StdinStreamID string
	TTY           *Size
	// Combined makes stdout and stderr one stream.
	Combined bool
	// IgnoreStdout and IgnoreStderr discard an output.
	IgnoreStdout, IgnoreStderr bool
	// WaitUpTo bounds the wait for its end; 0 returns as soon as it has started.
	WaitUpTo time.Duration
}

// ExecutionFile is a file written before an execution starts.
type ExecutionFile = wire.ExecutionFile

// execution is the command with its options as the wire has it.
func (cmd Command) execution(o ExecutionOptions) wire.ExecutionCommand {
	kept := map[bool]string{true: "ignore"}
	return wire.ExecutionCommand{
		Kind: o.Kind, Command: cmd.Argv, Shell: cmd.Shell, Files: o.Files, Cwd: cmd.Cwd, Env: cmd.Env, User: cmd.User,
		TimeoutSeconds: seconds(cmd.Timeout), Stdin: o.Stdin, StdinStreamID: o.StdinStreamID, TTY: o.TTY, Combined: o.Combined, Limits: cmd.limits(),
		Stdout: kept[o.IgnoreStdout], Stderr: kept[o.IgnoreStderr],
	}
}

// Start starts a command that outlives this client and a restart of the server. Streams
// store its output, see [Streams.Read]. If the command cannot be started, the execution has failed.
func (c *Executions) Start(ctx context.Context, ref string, cmd Command, o ExecutionOptions) (*Execution, error) {
	body := wire.StartExecution{ExecutionCommand: cmd.execution(o), WaitSeconds: seconds(o.WaitUpTo)}
	return fetch[Execution](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "executions"), body: body})
}

func executionPath(id string) string { return "/v1/executions/" + url.PathEscape(id) }

// Get returns an execution: at once when wait is 0, else when it has ended or after wait, at
// most 10 minutes.
func (c *Executions) Get(ctx context.Context, id string, wait time.Duration) (*Execution, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(seconds(wait)))
	}
	return fetch[Execution](ctx, c.transport, request{method: http.MethodGet, path: executionPath(id), query: q, repeat: true})
}

// List lists the executions of a sandbox, of a single kind unless kind is empty, newest
// first. Errors: NotFound.
func (c *Executions) List(ref, kind string) *List[Execution] {
	return newList[Execution](c.transport, sandboxPath(ref, "executions"), map[string]string{"kind": kind})
}

// Cancel ends an execution: all its processes get SIGTERM, and SIGKILL 5
// seconds later; with force SIGKILL at once. It does not wait for the end.
func (c *Executions) Cancel(ctx context.Context, id string, force bool) (*Execution, error) {
	body := wire.CancelExecution{Force: force}
	return fetch[Execution](ctx, c.transport, request{method: http.MethodPost, path: executionPath(id) + "/cancel", body: body, repeat: true})
}

// Streams has the calls for durable streams: the output and the input of executions.
type Streams struct{ *transport }

// StreamOptions select the part of a stream to read.
type StreamOptions struct {
	Offset     int64 // the byte to begin at
	Follow     bool  // at the end wait for more until the stream ends
	Timestamps bool  // put the time of arrival before every line
}

func streamPath(id string) string { return "/v1/streams/" + url.PathEscape(id) }

// Read reads a stream, while it grows and afterwards. The caller closes the reader. A broken
// connection is a read error: continue at the offset.
func (c *Streams) Read(ctx context.Context, id string, o StreamOptions) (io.ReadCloser, error) {
	q := url.Values{}
	if o.Offset > 0 {
		q.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Timestamps {
		q.Set("timestamps", "true")
	}
	return c.open(ctx, streamPath(id), q)
}

// Create makes an input stream for a later command, and returns its id.
func (c *Streams) Create(ctx context.Context) (string, error) {
	var s struct{ ID string }
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/streams"}, &s)
	return s.ID, err
}

// Write appends the content of r to an input stream as it arrives, and with end ends the
// stream.
func (c *Streams) Write(ctx context.Context, id string, r io.Reader, end bool) error {
	q := url.Values{}
	if !end {
		q.Set("eof", "false")
	}
	return c.call(ctx, request{method: http.MethodPut, path: streamPath(id), query: q, stream: r}, nil)
}

// Attach connects to an execution, from a byte of its stdout on. The execution goes on
// when the session is closed, and can be attached again.
func (c *Executions) Attach(ctx context.Context, ref, id string, offset int64) (*Session, error) {
	path := sandboxPath(ref, "executions", url.PathEscape(id), "attach")
	conn, err := c.dial(ctx, path+"?offset="+strconv.FormatInt(offset, 10))
	if err != nil {
		return nil, err
	}
	s := &Session{conn: conn}
	s.ctx, s.stop = context.WithCancel(ctx)
	return s, nil
}
