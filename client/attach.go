package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client/wire"
)

// Size is a terminal's size in characters.
type Size = wire.TTYSize

// AttachOptions configure the connection to a command.
type AttachOptions struct {
	// TTY, unless nil, runs the command on a terminal of that size; stderr is then part of stdout.
	TTY *Size
	// Stdin enables Write; otherwise stdin is /dev/null.
	Stdin bool
}

// The first byte of a binary message.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
)

// maxMessage bounds a message from the server.
const maxMessage = 1 << 20

// Session is a running command with stdin, terminal and signals. One goroutine runs Copy; any may
// call the other methods.
type Session struct {
	conn *websocket.Conn
	ctx  context.Context
	stop context.CancelFunc

	mu sync.Mutex // orders Write, which uses buf
	// buf is the message to send, so that Write does not allocate; guarded by mu.
	buf []byte
}

// Attach starts a command and stays connected to it over a WebSocket. The end of ctx, and Close,
// end the session and kill a command that still runs.
func (c *Sandboxes) Attach(ctx context.Context, ref string, cmd Command, o AttachOptions) (*Session, error) {
	start, err := json.Marshal(wire.AttachStart{
		Command: cmd.Argv, Shell: cmd.Shell, Cwd: cmd.Cwd, Env: cmd.Env, User: cmd.User, TimeoutSeconds: seconds(cmd.Timeout),
		TTY: o.TTY, Stdin: o.Stdin, Limits: cmd.limits(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	conn, err := c.dial(ctx, sandboxPath(ref, "exec", "attach"))
	if err != nil {
		return nil, err
	}
	if err := conn.Write(ctx, websocket.MessageText, start); err != nil {
		conn.CloseNow()
		return nil, fmt.Errorf("attach: %w", err)
	}
	s := &Session{conn: conn}
	s.ctx, s.stop = context.WithCancel(ctx)
	return s, nil
}

// Copy writes the command's output to the two writers until it ends, and returns its exit; errors
// as for [Stream.Copy].
func (s *Session) Copy(stdout, stderr io.Writer) (*Exit, error) {
	for {
		kind, data, err := s.conn.Read(s.ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCut, err)
		}
		if kind == websocket.MessageBinary {
			if len(data) == 0 {
				continue
			}
			switch data[0] {
			case channelStdout:
				_, err = stdout.Write(data[1:])
			case channelStderr:
				_, err = stderr.Write(data[1:])
			}
			if err != nil {
				return nil, fmt.Errorf("write output: %w", err)
			}
			continue
		}
		var l streamLine
		if err := json.Unmarshal(data, &l); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		switch l.Type {
		case "exit":
			return &l.Exit, nil
		case "error":
			return nil, &Error{Code: l.Code, Message: l.Message}
		}
	}
}

// maxWrite bounds the stdin in a message.
const maxWrite = 32 << 10

// Write sends p to the command's stdin. It blocks while the command does not read.
func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := 0
	for len(p) > 0 {
		n := min(len(p), maxWrite)
		s.buf = append(append(s.buf[:0], channelStdin), p[:n]...)
		if err := s.conn.Write(s.ctx, websocket.MessageBinary, s.buf); err != nil {
			return sent, err
		}
		sent, p = sent+n, p[n:]
	}
	return sent, nil
}

// CloseStdin tells the command that its input ends.
func (s *Session) CloseStdin() error { return s.control(map[string]any{"type": "stdin_eof"}) }

// Resize sets the size of the command's terminal.
func (s *Session) Resize(size Size) error {
	return s.control(map[string]any{"type": "resize", "rows": size.Rows, "cols": size.Cols})
}

// Signal sends a signal, by number, to the command's process group.
func (s *Session) Signal(number int) error {
	return s.control(map[string]any{"type": "signal", "signal": number})
}

func (s *Session) control(message map[string]any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.conn.Write(s.ctx, websocket.MessageText, data)
}

// Close ends the session, and the command if it still runs.
func (s *Session) Close() error {
	s.stop()
	if err := s.conn.CloseNow(); err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		return err
	}
	return nil
}
