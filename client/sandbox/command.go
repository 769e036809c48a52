package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
)

// Cmd is a command to run. Make it with [Sandbox.Command] or [Sandbox.Shell], and change its fields
// before it runs.
type Cmd struct {
	Cwd   string
	Env   map[string]string
	User  string
	Stdin []byte
	// Timeout ends the command; 0 is the sandbox's execution timeout, or none.
	Timeout time.Duration
	// Limits are limits of the command and its processes, tighter than the sandbox's.
	Limits client.Limits
	// Stdout and Stderr, unless nil, get the output of [Cmd.Run] as it comes; Result is without it then.
	Stdout, Stderr io.Writer
	// Input lets [Process.Write] write to a started command, after Stdin.
	Input bool

	sandbox *Sandbox
	argv    []string
	shell   string
}

// Command returns the command that runs a program with arguments, without a shell.
func (s *Sandbox) Command(program string, args ...string) *Cmd {
	return &Cmd{sandbox: s, argv: append([]string{program}, args...)}
}

// Shell returns the command that runs a command line in the sandbox's shell.
func (s *Sandbox) Shell(line string) *Cmd { return &Cmd{sandbox: s, shell: line} }

// Run runs a command line in the sandbox's shell, as in Run(ctx, "ls -la | wc -l"). See [Cmd.Run].
func (s *Sandbox) Run(ctx context.Context, line string) (*Result, error) {
	return s.Shell(line).Run(ctx)
}

// Start starts a command line in the background. See [Cmd.Start].
func (s *Sandbox) Start(ctx context.Context, line string) (*Process, error) {
	return s.Shell(line).Start(ctx)
}

// Result is the end of a command with its output.
type Result struct {
	ExitCode       int // 128 + the signal when a signal ended it
	Signal         int
	TimedOut       bool
	LimitExceeded  string // the limit that ended it, such as [client.LimitMemory]; "" for none
	Stdout, Stderr string
	// StdoutTruncated and StderrTruncated say that there was more output than the server returns at once.
	StdoutTruncated, StderrTruncated bool
	Duration                         time.Duration
	// Scan has the findings of the scan that the policy of the workspace demands, unless the output was streamed; nil without a scan.
	Scan *client.CodeScan
}

// Err returns a *[CommandError] if the command failed, was ended by its timeout, or exceeded a limit.
func (r *Result) Err() error {
	if r.ExitCode == 0 && !r.TimedOut && r.LimitExceeded == "" {
		return nil
	}
	return &CommandError{Result: *r}
}

// CommandError is a command that failed.
type CommandError struct{ Result Result }

// Error returns the exit code, and the ends of the command's standard error and output: some programs,
// such as pip and pytest, explain a failure on the latter.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("the command ended with exit code %d", e.Result.ExitCode)
	if e.Result.TimedOut {
		text = "the command was ended by its timeout"
	}
	if e.Result.LimitExceeded != "" {
		text = "the command exceeded its limit of " + e.Result.LimitExceeded
	}
	const most = 512
	stderr := tail(e.Result.Stderr, most)
	stdout := tail(e.Result.Stdout, most-len(stderr))
	switch {
	case stderr != "" && stdout != "":
		return text + ": " + stderr + "\nstdout: " + stdout
	case stderr != "" || stdout != "":
		return text + ": " + stderr + stdout
	}
	return text
}

// tail returns the end of s without white space around it: at most some bytes, and "..." if there is
// more.
func tail(s string, most int) string {
	s = strings.TrimSpace(s)
	if most <= 0 || len(s) <= most {
		return s[:min(len(s), max(most, 0))]
	}
	return "..." + strings.ToValidUTF8(s[len(s)-most:], "")
}

func (c *Cmd) command() client.Command {
	return client.Command{Argv: c.argv, Shell: c.shell, Cwd: c.Cwd, Env: c.Env, User: c.User, Stdin: c.Stdin, Timeout: c.Timeout, Limits: c.Limits}
}

// Run runs the command to its end. A command that fails is no error: look at ExitCode, or call
// [Result.Err]. When ctx ends, the command is killed. Errors: Ended; ProgramNotFound; FileNotFound
// for a missing working directory; a writer's error; [client.ErrCut].
func (c *Cmd) Run(ctx context.Context) (*Result, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return c.stream(ctx)
	}
	r, err := c.sandbox.client.Sandboxes.Exec(ctx, c.sandbox.ID, c.command())
	if err != nil {
		return nil, err
	}
	return &Result{
		ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, LimitExceeded: r.LimitExceeded, Stdout: string(r.Stdout), Stderr: string(r.Stderr),
		StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated, Duration: milliseconds(r.DurationMS), Scan: r.Scan,
	}, nil
}

// stream runs the command with its output written as it comes.
func (c *Cmd) stream(ctx context.Context) (*Result, error) {
	s, err := c.sandbox.client.Sandboxes.ExecStream(ctx, c.sandbox.ID, c.command())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var stdout, stderr kept
	out, errOut := c.Stdout, c.Stderr
	if out == nil {
		out = &stdout
	}
	if errOut == nil {
		errOut = &stderr
	}
	exit, err := s.Copy(out, errOut)
	if err != nil {
		return nil, err
	}
	return &Result{
		ExitCode: exit.ExitCode, Signal: exit.Signal, TimedOut: exit.TimedOut, LimitExceeded: exit.LimitExceeded, Stdout: stdout.buf.String(), Stderr: stderr.buf.String(),
		StdoutTruncated: stdout.truncated, StderrTruncated: stderr.truncated, Duration: milliseconds(exit.DurationMS),
	}, nil
}

// keptMax bounds the output without a writer.
const keptMax = 16 << 20

// kept keeps the beginning of an output.
type kept struct {
	buf       bytes.Buffer
	truncated bool
}

// Write implements [io.Writer]. It never fails.
func (k *kept) Write(p []byte) (int, error) {
	n := min(len(p), keptMax-k.buf.Len())
	k.truncated = k.truncated || n < len(p)
	k.buf.Write(p[:n])
	return len(p), nil
}

// Process is a command that runs in the background, whatever happens to this program. Its methods
// are safe for concurrent use.
type Process struct {
	// ID identifies the execution; see [Sandbox.Process].
	ID string

	client *client.Client
	stdout string
	stderr string
	stdin  string
}

// Start starts the command in the background, and returns when it has started. The server stores its output;
// read it with [Process.Stdout] and [Process.Stderr]. Errors: Ended; ProgramNotFound.
func (c *Cmd) Start(ctx context.Context) (*Process, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("a command in the background has no writers: read Process.Stdout and Process.Stderr")
	}
	input := c.Input || len(c.Stdin) > 0
	e, err := c.sandbox.client.Executions.Start(ctx, c.sandbox.ID, c.command(), client.ExecutionOptions{Kind: client.KindJob, Stdin: input})
	if err != nil {
		return nil, err
	}
	p := process(c.sandbox.client, e)
	if len(c.Stdin) > 0 {
		err = p.client.Streams.Write(ctx, p.stdin, bytes.NewReader(c.Stdin), !c.Input)
	}
	return p, err
}

// Process returns a command that was started before, perhaps by another program. Errors: NotFound.
func (s *Sandbox) Process(ctx context.Context, id string) (*Process, error) {
	e, err := s.client.Executions.Get(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	if e.SandboxID != s.ID {
		return nil, &client.Error{Code: client.NotFound, Message: fmt.Sprintf("sandbox %s has no execution %s", s.Name, id)}
	}
	return process(s.client, e), nil
}

// MainCommand returns the image's own command, which started with the sandbox. Errors: NotFound if
// the image has none, and in a fork, which has no record of it.
func (s *Sandbox) MainCommand(ctx context.Context) (*Process, error) {
	page, err := s.client.Executions.List(s.ID, client.KindMain).Page(ctx, client.PageOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Items) == 0 {
		return nil, &client.Error{Code: client.NotFound, Message: fmt.Sprintf("sandbox %s has no record of a main command", s.Name)}
	}
	return process(s.client, &page.Items[0]), nil
}

func process(c *client.Client, e *client.Execution) *Process {
	return &Process{ID: e.ID, client: c, stdout: e.Stdout.StreamID, stderr: e.Stderr.StreamID, stdin: e.StdinStreamID}
}

// Stdout reads the standard output from its beginning, as it comes, until the command has ended. The
// caller closes the reader. It goes on where it was when the connection breaks.
func (p *Process) Stdout(ctx context.Context) io.ReadCloser { return p.reader(ctx, p.stdout) }

// Stderr is Stdout for the standard error.
func (p *Process) Stderr(ctx context.Context) io.ReadCloser { return p.reader(ctx, p.stderr) }

func (p *Process) reader(ctx context.Context, id string) io.ReadCloser {
	return &output{open: func(offset int64) (io.ReadCloser, error) {
		return p.client.Streams.Read(ctx, id, client.StreamOptions{Offset: offset, Follow: true})
	}, ctx: ctx}
}

// Write writes to the standard input of a command that was started with Cmd.Input.
func (p *Process) Write(ctx context.Context, data []byte) error {
	return p.input(ctx, data, false)
}

// CloseInput ends the standard input.
func (p *Process) CloseInput(ctx context.Context) error { return p.input(ctx, nil, true) }

func (p *Process) input(ctx context.Context, data []byte, end bool) error {
	if p.stdin == "" {
		return errors.New("the command was started without input: set Cmd.Input")
	}
	return p.client.Streams.Write(ctx, p.stdin, bytes.NewReader(data), end)
}

// waitStep bounds a request that waits for the end of a command.
const waitStep = 4 * time.Minute

// Wait returns the exit code when the command has ended, or ctx's error. Errors: an error with the
// reason if the exit code cannot be known.
func (p *Process) Wait(ctx context.Context) (exitCode int, err error) {
	for {
		e, err := p.client.Executions.Get(ctx, p.ID, waitStep)
		if err != nil {
			return 0, err
		}
		switch e.State {
		case client.ExecutionQueued, client.ExecutionRunning:
			continue
		}
		if e.ExitCode == nil {
			return 0, fmt.Errorf("execution %s is %s without an exit code: %s", e.ID, e.State, e.Error)
		}
		return *e.ExitCode, nil
	}
}

// Stop ends the command: its processes get SIGTERM, and SIGKILL 5 seconds later. It does not wait.
func (p *Process) Stop(ctx context.Context) error {
	_, err := p.client.Executions.Cancel(ctx, p.ID, false)
	return err
}

// Kill kills the processes of the command. It does not wait for their end.
func (p *Process) Kill(ctx context.Context) error {
	_, err := p.client.Executions.Cancel(ctx, p.ID, true)
	return err
}

// reopens bounds the attempts to go on after a connection broke, without a byte in between.
const reopens = 5

// output reads a stream of output, and goes on where it was after a broken connection.
type output struct {
	open   func(offset int64) (io.ReadCloser, error)
	ctx    context.Context
	body   io.ReadCloser
	offset int64
	failed int // attempts since the last byte
}

// Read implements [io.Reader].
func (o *output) Read(b []byte) (int, error) {
	for {
		if o.body == nil {
			body, err := o.open(o.offset)
			if err != nil {
				return 0, err // the client has repeated it
			}
			o.body = body
		}
		n, err := o.body.Read(b)
		o.offset += int64(n)
		if n > 0 {
			o.failed = 0
		}
		if n > 0 && err != io.EOF || err == nil || err == io.EOF {
			return n, endOnly(err)
		}
		_ = o.Close()
		if o.failed++; o.failed > reopens || o.ctx.Err() != nil {
			return 0, err
		}
	}
}

// endOnly returns io.EOF, and nil for another error, which the next Read meets again.
func endOnly(err error) error {
	if err == io.EOF {
		return err
	}
	return nil
}

// Close implements [io.Closer].
func (o *output) Close() error {
	if o.body == nil {
		return nil
	}
	err := o.body.Close()
	o.body = nil
	return err
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
