package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modbox/modbox/client/wire"
)

// body is the command as the wire has it.
func (cmd Command) body() wire.Exec {
	return wire.Exec{
		Command: cmd.Argv, Shell: cmd.Shell, Program: cmd.Program, Cwd: cmd.Cwd, Env: cmd.Env, User: cmd.User, Stdin: string(cmd.Stdin),
		TimeoutSeconds: seconds(cmd.Timeout), MaxOutputBytes: int(cmd.MaxOutput), Limits: cmd.limits(),
	}
}

// limits are the limits as the wire has them.
func (cmd Command) limits() *wire.ExecLimits {
	if cmd.Limits == (Limits{}) {
		return nil
	}
	return &cmd.Limits
}

// Exec runs a command to its end and returns its output. A command that fails is
// no error: look at ExitCode. When ctx ends the command is killed.
//
// Errors: NotFound, NotRunning, Ended; ProgramNotFound; FileNotFound, naming cwd, for a missing working
// directory.
func (c *Sandboxes) Exec(ctx context.Context, ref string, cmd Command) (*ExecResult, error) {
	body := cmd.body()
	body.Encoding = "base64" // output is bytes; encoding/json decodes base64 into []byte
	return fetch[ExecResult](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "exec"), body: body})
}

// Stream is a running command whose output is read as it comes. It is not safe for concurrent use.
type Stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
	exit  *Exit
}

// ExecStream starts a command; read its output with Copy. Closing the stream, or the
// end of ctx, kills a command that still runs.
func (c *Sandboxes) ExecStream(ctx context.Context, ref string, cmd Command) (*Stream, error) {
	resp, err := c.send(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "exec", "stream"), body: cmd.body()})
	if err != nil {
		return nil, err
	}
	return &Stream{body: resp.Body, lines: bufio.NewReaderSize(resp.Body, 128<<10)}, nil
}

// streamLine is one line of the answer.
type streamLine struct {
	Type string `json:"type"`
	Data []byte `json:"data"` // base64 on the wire
	Exit
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// ErrCut means that a stream broke off before the end of the command was known.
var ErrCut = errors.New("the connection broke before the command's end was known")

// Copy writes the command's output to the two writers until it ends, and returns its exit. Errors:
// an [*Error] that the server sent, a writer's error, or [ErrCut]; without the real exit Copy
// returns an error.
func (s *Stream) Copy(stdout, stderr io.Writer) (*Exit, error) {
	for s.exit == nil {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCut, err)
		}
		var l streamLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		switch l.Type {
		case "stdout":
			_, err = stdout.Write(l.Data)
		case "stderr":
			_, err = stderr.Write(l.Data)
		case "exit":
			s.exit = &l.Exit
		case "error":
			return nil, &Error{Code: l.Code, Message: l.Message}
		}
		if err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
	return s.exit, nil
}

// Close ends the stream, and the command if it still runs.
func (s *Stream) Close() error { return s.body.Close() }
