package executions

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// attachExecution is GET …/executions/{execution}/attach: a connection to an execution that goes on
// without it, for any number of clients at a time. Its messages are the messages of attach, without
// the client's first message.
func (h *Executions) attachExecution(w http.ResponseWriter, r *http.Request) error {
	offset, err := integer(r.URL.Query().Get("offset"))
	if err != nil || offset < 0 {
		return sandbox.InvalidField("offset", "must be a number of bytes")
	}
	c := route.Caller(r.Context())
	sb, err := h.Sandboxes.Get(r.Context(), c, r.PathValue("sandbox"))
	if err != nil {
		return err
	}
	t, err := h.Service.Terminal(r.Context(), c, sandbox.ExecutionID(r.PathValue("execution")))
	if err != nil {
		return err
	}
	if t.Execution.Sandbox != sb.ID {
		return sandbox.Errorf(sandbox.NotFound, "there is no such execution in the sandbox")
	}
	if most := t.Execution.Stdout.Bytes; offset > most {
		return sandbox.InvalidField("offset", "must be 0 to %d, the bytes there are", most)
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.AttachReadLimit)
	audit.FromContext(r.Context()).Start()
	ctx, cancel := context.WithCancel(r.Context())
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer cancel() // the client is gone
		h.receiveFor(ctx, conn, t)
	}()
	defer func() {
		cancel()
		conn.CloseNow()
		<-received
	}()
	go ping(ctx, cancel, conn, h.Ping)
	h.sendExecution(ctx, conn, t, offset)
	return nil
}

// sendExecution sends the output from an offset of stdout on, and how it ended.
func (h *Executions) sendExecution(ctx context.Context, conn *websocket.Conn, t *execution.Terminal, offset int64) {
	e := t.Execution
	started := wire.StreamMessage{Type: wire.StreamStarted, ProcessID: string(e.ID), StartedAt: route.Optional(e.StartedAt)}
	if writeMessage(ctx, conn, started) != nil {
		return
	}
	sent := make(chan error, 1)
	if e.Stderr.ID == e.Stdout.ID {
		sent <- nil
	} else {
		go func() { sent <- h.sendStream(ctx, conn, wire.ChannelStderr, e.Stderr.ID, 0) }()
	}
	err := h.sendStream(ctx, conn, wire.ChannelStdout, e.Stdout.ID, offset)
	if other := <-sent; err == nil {
		err = other
	}
	if err == nil {
		e, err = h.Service.Wait(ctx, sandbox.Caller{User: e.CreatedBy, Workspace: e.Workspace}, e.ID, writeTime)
	}
	if ctx.Err() != nil {
		return // the client is gone
	}
	m := exitOf(&e)
	if err != nil {
		p := edge.Problem(ctx, err)
		m = wire.StreamMessage{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail}
	}
	if writeMessage(ctx, conn, m) == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
}

// exitOf says how an execution ended; without an exit code that is an error.
func exitOf(e *sandbox.Execution) wire.StreamMessage {
	if e.ExitCode == nil {
		return wire.StreamMessage{Type: wire.StreamError, Code: string(sandbox.Unavailable), Message: "the execution is " + string(e.State) + ": " + e.Error}
	}
	ms := e.Duration.Milliseconds()
	return wire.StreamMessage{Type: wire.StreamExit, ExitCode: e.ExitCode, TimedOut: e.TimedOut(), LimitExceeded: e.LimitExceeded, DurationMS: &ms}
}

// sendStream sends a stream to its end.
func (h *Executions) sendStream(ctx context.Context, conn *websocket.Conn, channel byte, id sandbox.StreamID, offset int64) error {
	r, _, err := h.Service.OpenStream(ctx, string(id), offset, true)
	if err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, 1+32<<10)
	buf[0] = channel
	for {
		n, err := r.Read(buf[1:])
		if n > 0 {
			if err := write(ctx, conn, websocket.MessageBinary, buf[:1+n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receiveFor carries input and control from the client until it is gone.
func (h *Executions) receiveFor(ctx context.Context, conn *websocket.Conn, t *execution.Terminal) {
	id := string(t.Execution.Stdin)
	stdin := func(p []byte) error {
		if t.Execution.TTY {
			return t.Write(ctx, p)
		}
		return h.Service.WriteStdin(ctx, id, bytes.NewReader(p))
	}
	messages(ctx, conn, stdin, func(c wire.AttachControl) {
		switch c.Type {
		case wire.StreamResize:
			_ = t.Resize(ctx, agentapi.Size{Rows: c.Rows, Cols: c.Cols})
		case wire.StreamSignal:
			_ = t.Signal(ctx, c.Signal)
		case wire.StreamStdinEOF:
			const endOfFile = 4 // the end-of-file character of a terminal
			if t.Execution.TTY {
				_ = t.Write(ctx, []byte{endOfFile})
			} else {
				_ = h.Service.CloseStdin(ctx, id)
			}
		}
	})
}
