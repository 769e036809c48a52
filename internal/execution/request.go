package execution

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

// Request describes a command that continues after the API request that starts it.
type Request struct {
	// Kind is sandbox.Exec when empty.
	Kind sandbox.ExecutionKind
	// Argv is the program and its arguments. Script, when Argv is empty, is run by
	// bash, or by sh in an image without it.
	Argv   []string
	Script string `json:",omitempty"`
	// Files are written before the command starts.
	Files []File            `json:",omitempty"`
	Env   map[string]string `json:",omitempty"` // added to the sandbox's
	Cwd   string            `json:",omitempty"`
	// MakeCwd makes Cwd, with its parents, when it is missing.
	MakeCwd bool   `json:",omitempty"`
	User    string `json:",omitempty"`
	// Timeout ends the command; 0 is the sandbox's execution timeout, or none.
	Timeout time.Duration `json:",omitempty"`
	// Limits are limits of the command, tighter than the sandbox's.
	Limits agentapi.Limits `json:",omitzero"`
	// Stdin makes a stream that the command reads from; it is written with
	// [Service.WriteStdin]. StdinStream names an existing stream.
	Stdin       bool             `json:",omitempty"`
	StdinStream sandbox.StreamID `json:",omitempty"`
	// TTY, when set, runs the command on a terminal, whose input comes by
	// [Service.Terminal].
	TTY *agentapi.Size `json:",omitempty"`
	// Combined makes stdout and stderr one stream; StdoutOff and StderrOff keep nothing of one.
	Combined             bool `json:",omitempty"`
	StdoutOff, StderrOff bool `json:",omitempty"`

	reviewed bool // its code may run
}

// File is a file that is written before a command starts.
type File struct {
	// Path is absolute, or relative to the command's working directory as far as the
	// request or the image names one, else to /. Missing parents are made.
	Path    string
	Content []byte
}

// size returns the total size of the files, in bytes.
func (req *Request) size() (n int64) {
	for _, f := range req.Files {
		n += int64(len(f.Path) + len(f.Content))
	}
	return n
}

const (
	bash, sh = "/bin/bash", "/bin/sh"
	sigkill  = 9
)

// argv returns the program and its arguments; shell is the shell for scripts.
func (req *Request) argv(shell string) []string {
	if len(req.Argv) > 0 {
		return slices.Clone(req.Argv)
	}
	return []string{shell, "-c", req.Script}
}

// code returns the code that the request contains.
func (req *Request) code(ctx context.Context) []codescan.Code {
	argv := req.argv(bash)
	codes := codescan.OfCommand(ctx, argv)
	for _, f := range req.Files {
		if code, ok := codescan.File(argv, f.Path, string(f.Content)); ok {
			codes = append(codes, code)
		}
	}
	return codes
}

// command returns the command for the agent.
func (req *Request) command(e *sandbox.Execution, sb *sandbox.Sandbox, shell string) agentapi.Command {
	timeout := req.Timeout
	if timeout == 0 {
		timeout = sb.Timeouts.Execution
	}
	return agentapi.Command{
		ID: string(e.ID), Argv: req.argv(shell), Cwd: req.Cwd, User: req.User, Env: maps.Clone(req.Env),
		Timeout: timeout, Grace: cancelGrace, Stdin: e.Stdin != "" || e.TTY, TTY: req.TTY, Detach: true, Backpressure: true, Limits: req.Limits,
	}
}

// Validate checks a request, and sets its kind if it has none.
func (req *Request) Validate() error {
	switch req.Kind {
	case "":
		req.Kind = sandbox.Exec
	case sandbox.Exec, sandbox.Job:
	default:
		return sandbox.InvalidField("kind", "must be %s or %s", sandbox.Exec, sandbox.Job)
	}
	if len(req.Argv) > 0 && req.Script != "" {
		return sandbox.InvalidField("shell", "give either command or shell, not both")
	}
	if req.Script == "" {
		if err := sandbox.CheckArgv(req.Argv); err != nil {
			return err
		}
	} else if err := sandbox.CheckScript(req.Script); err != nil {
		return err
	}
	switch {
	case req.Timeout < 0 || req.Timeout > sandbox.TimeoutMax:
		return sandbox.InvalidField("timeout_seconds", "must be 0 to %d seconds", int(sandbox.TimeoutMax/time.Second))
	case len(req.Files) > sandbox.ExecutionFiles:
		return sandbox.InvalidField("files", "must be at most %d", sandbox.ExecutionFiles)
	}
	if req.StdinStream != "" {
		if _, ok := sandbox.ParseStreamID(string(req.StdinStream)); !ok {
			return sandbox.InvalidField("stdin_stream_id", "is not the id of a stream")
		}
	}
	total := 0
	for _, f := range req.Files {
		total += len(f.Content)
		if f.Path == "" || strings.ContainsRune(f.Path, 0) {
			return sandbox.InvalidField("files", "every file must have a path, without NUL characters")
		}
	}
	if total > sandbox.ExecutionFilesMax {
		return sandbox.InvalidField("files", "must be at most %d bytes together; upload larger files", sandbox.ExecutionFilesMax)
	}
	if err := sandbox.CheckPlace(req.Cwd, req.User); err != nil {
		return err
	}
	return sandbox.CheckEnv(req.Env)
}
