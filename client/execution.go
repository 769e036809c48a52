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

// ExecutionState says where an execution is in its life.
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
	KindExec = "exec" // its exit code is its caller's matter
	KindJob  = "job"  // it failed when its exit code is not 0
)

// Execution is a command in a sandbox that is kept after its end, with its output.
type Execution = wire.Execution

// OutputStream is where an execution's output is kept.
type OutputStream = wire.OutputStream

// ExecutionOptions say how an execution runs, beside its Command; of that Stdin
// and MaxOutput do not count.
type ExecutionOptions struct {
	Kind string // KindExec when empty
	// Files are written before it starts, by path.
	Files []ExecutionFile
	// Stdin makes a stream for its input; StdinStreamID names one made by CreateStream.
	Stdin         bool
	StdinStreamID string
	TTY           *Size
	// Combined makes stdout and stderr one stream.
	Combined bool
	// IgnoreStdout and IgnoreStderr keep nothing of an output.
	IgnoreStdout, IgnoreStderr bool
	// WaitUpTo is how long to wait for its end; 0 returns as soon as it has started.
	WaitUpTo time.Duration
}

// ExecutionFile is a file written before an execution starts.
type ExecutionFile = wire.ExecutionFile

// execution is the command with its options as the wire has it.
func (cmd Command) execution(o ExecutionOptions) wire.ExecutionCommand {
	kept := map[bool]string{true: "ignore"}
	return wire.ExecutionCommand{
		Kind: o.Kind, Command: cmd.Argv, Shell: cmd.Shell, Files: o.Files, Cwd: cmd.Cwd, Env: cmd.Env, User: cmd.User,
		TimeoutSeconds: seconds(cmd.Timeout), Stdin: o.Stdin, StdinStreamID: o.StdinStreamID, TTY: o.TTY, Combined: o.Combined,
		Stdout: kept[o.IgnoreStdout], Stderr: kept[o.IgnoreStderr],
	}
}

// StartExecution starts a command that goes on whatever becomes of this client
// and of the server; its output is kept in streams, see ReadStream. That it could
// not be started is told by the execution, which then has failed.
func (c *Client) StartExecution(ctx context.Context, ref string, cmd Command, o ExecutionOptions) (*Execution, error) {
	body := wire.StartExecution{ExecutionCommand: cmd.execution(o), WaitSeconds: seconds(o.WaitUpTo)}
	e := new(Execution)
	return result(e, c.call(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "executions"), body: body}, e))
}

func executionPath(id string) string { return "/v1/executions/" + url.PathEscape(id) }

// Execution returns an execution, at once when wait is 0, else when it has ended
// but after wait, 10 minutes at most, at the latest.
func (c *Client) Execution(ctx context.Context, id string, wait time.Duration) (*Execution, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(seconds(wait)))
	}
	e := new(Execution)
	return result(e, c.call(ctx, request{method: http.MethodGet, path: executionPath(id), query: q, repeat: true}, e))
}

// Executions lists the executions of a sandbox, of one kind unless that is empty,
// newest first. Errors: NotFound.
func (c *Client) Executions(ref, kind string) *List[Execution] {
	return newList[Execution](c, sandboxPath(ref, "executions"), map[string]string{"kind": kind})
}

// CancelExecution ends an execution: all its processes get SIGTERM, and SIGKILL 5
// seconds later; with force SIGKILL at once. It does not wait for the end.
func (c *Client) CancelExecution(ctx context.Context, id string, force bool) (*Execution, error) {
	e := new(Execution)
	body := wire.CancelExecution{Force: force}
	return result(e, c.call(ctx, request{method: http.MethodPost, path: executionPath(id) + "/cancel", body: body, repeat: true}, e))
}

// StreamOptions say what of a stream is read.
type StreamOptions struct {
	Offset     int64 // the byte to begin at
	Follow     bool  // wait at the end for more until the stream ends
	Timestamps bool  // put the time at which it came before every line
}

func streamPath(id string) string { return "/v1/streams/" + url.PathEscape(id) }

// ReadStream reads a stream, while it grows and afterwards. The caller closes
// the reader. A connection that breaks shows as a read error: go on by offset.
func (c *Client) ReadStream(ctx context.Context, id string, o StreamOptions) (io.ReadCloser, error) {
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
	resp, err := c.send(ctx, request{method: http.MethodGet, path: streamPath(id), query: q, repeat: true})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// CreateStream makes an input stream for a command that is to come, and returns its id.
func (c *Client) CreateStream(ctx context.Context) (string, error) {
	var s struct{ ID string }
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/streams"}, &s)
	return s.ID, err
}

// WriteStream adds what r holds to an input stream as it comes, and with end ends it.
func (c *Client) WriteStream(ctx context.Context, id string, r io.Reader, end bool) error {
	q := url.Values{}
	if !end {
		q.Set("eof", "false")
	}
	return c.call(ctx, request{method: http.MethodPut, path: streamPath(id), query: q, stream: r}, nil)
}

// AttachExecution connects to an execution, from a byte of its stdout on. It goes
// on when the session is closed, and can be attached to again.
func (c *Client) AttachExecution(ctx context.Context, ref, id string, offset int64) (*Session, error) {
	path := sandboxPath(ref, "executions", url.PathEscape(id), "attach")
	conn, err := c.dial(ctx, path+"?offset="+strconv.FormatInt(offset, 10))
	if err != nil {
		return nil, err
	}
	s := &Session{conn: conn}
	s.ctx, s.stop = context.WithCancel(ctx)
	return s, nil
}

// UpdateEnv sets environment variables of a sandbox, and deletes those whose
// value is nil, for the commands that start afterwards. It returns all that
// callers have set.
func (c *Client) UpdateEnv(ctx context.Context, ref string, changes map[string]*string) (map[string]string, error) {
	var env struct{ Env map[string]string }
	err := c.call(ctx, request{method: http.MethodPatch, path: sandboxPath(ref, "env"), body: changes, repeat: true}, &env)
	return env.Env, err
}
