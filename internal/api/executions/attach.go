package executions

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// startTime is how long a client may take to say what to run.
	startTime = 10 * time.Second
	// writeTime bounds a single write of output: a client that reads nothing for so long is disconnected.
	writeTime = time.Minute
	// stdinPiece is read of a message with stdin at a time. The message that says what
	// to run may be as long as any, other control messages have controlMax bytes.
	stdinPiece = 32 << 10
	controlMax = 64 << 10
)

const attachDescription = `The first message is text: ` + "`{\"command\":[…] or \"shell\":\"…\",\"cwd\",\"env\",\"user\",\"timeout_seconds\",\"tty\":{\"rows\",\"cols\"},\"stdin\":true}`" + `.

Then binary messages carry data: their first byte is the channel (0 stdin, 1 stdout, 2 stderr), the rest raw bytes. With a terminal everything is on stdout.

Text messages from the client: ` + "`{\"type\":\"resize\",\"rows\",\"cols\"}`, `{\"type\":\"signal\",\"signal\":15}`, `{\"type\":\"stdin_eof\"}`" + `. From the server: ` + "`started`, at last `exit` or `error`" + `, with the fields of StreamMessage. The server pings every 15 seconds. When the client goes away the command is killed.`

// attach is GET …/exec/attach: a command over a WebSocket, with stdin and a
// terminal. The first message says what to run; then binary messages carry a
// channel byte and raw bytes, text messages control.
func (h *Commands) attach(w http.ResponseWriter, r *http.Request) error {
	ref := r.PathValue("sandbox")
	if _, err := h.Timeouts.Sandboxes.Get(r.Context(), route.Caller(r.Context()), ref); err != nil {
		return err // while a status can still be answered
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.AttachReadLimit)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if err := h.attached(ctx, cancel, conn, ref); err != nil && ctx.Err() == nil {
		p := edge.Problem(ctx, err)
		_ = writeMessage(ctx, conn, wire.StreamMessage{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail})
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	return nil
}

func (h *Commands) attached(ctx context.Context, gone context.CancelFunc, conn *websocket.Conn, ref string) error {
	startCtx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var in wire.AttachStart
	if err := wsjson.Read(startCtx, conn, &in); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the first message must be a JSON object that says what to run")
	}
	cmd, err := attachCommand(in)
	if err != nil {
		return err
	}
	scanCtx, report := codescan.Collect(ctx)
	session, err := command.Start(scanCtx, h.commands(ctx, ref, in.Shell != ""), cmd)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Start()
	read := make(chan struct{})
	go func() {
		defer close(read)
		receive(ctx, conn, session)
		gone() // without a client the command has nobody to run for
	}()
	defer func() {
		session.Close()
		conn.CloseNow()
		<-read
	}()
	if err := writeMessage(ctx, conn, started(session.Info(), report)); err != nil {
		return nil
	}
	go ping(ctx, gone, conn, h.Ping)
	return send(ctx, conn, session)
}

// pingTimeout is the least time for sending a ping and its answer: a ping that is cut off while it
// is sent ends the connection.
const pingTimeout = 10 * time.Second

// ping keeps a silent connection alive until ctx ends. A client that does not answer
// may be busy with the output. That it is gone reading tells, or, as nothing is read while
// the command takes no more input, a ping that cannot be sent: then it calls gone.
func ping(ctx context.Context, gone context.CancelFunc, conn *websocket.Conn, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answer, cancel := context.WithTimeout(ctx, max(every, pingTimeout))
		err := conn.Ping(answer)
		late := answer.Err() != nil
		cancel()
		if err != nil && !late {
			gone()
			return
		}
	}
}

func attachCommand(in wire.AttachStart) (agentapi.Command, error) {
	argv, err := argvOf(in.Command, in.Shell)
	if err != nil {
		return agentapi.Command{}, err
	}
	limits, err := command.Limits(in.Limits)
	if err != nil {
		return agentapi.Command{}, err
	}
	if in.TimeoutSeconds < 0 {
		return agentapi.Command{}, sandbox.InvalidField("timeout_seconds", "must not be negative")
	}
	cmd := agentapi.Command{Argv: argv, Cwd: in.Cwd, User: in.User, Env: in.Env, Timeout: route.Seconds(in.TimeoutSeconds), Stdin: in.Stdin, Limits: limits}
	if in.TTY != nil {
		cmd.TTY = &agentapi.Size{Rows: in.TTY.Rows, Cols: in.TTY.Cols}
		cmd.Stdin = true
	}
	return cmd, nil
}

// send carries the command's output to the client until its end.
func send(ctx context.Context, conn *websocket.Conn, session *command.Session) error {
	buf := make([]byte, 0, agentapi.MaxFrame+1)
	for {
		f, err := session.Next()
		if err == io.EOF {
			return conn.Close(websocket.StatusNormalClosure, "")
		}
		if err != nil {
			return err
		}
		switch f.Type {
		case agentapi.FrameStdout:
			buf = append(append(buf[:0], wire.ChannelStdout), f.Data...)
			err = write(ctx, conn, websocket.MessageBinary, buf)
		case agentapi.FrameStderr:
			buf = append(append(buf[:0], wire.ChannelStderr), f.Data...)
			err = write(ctx, conn, websocket.MessageBinary, buf)
		case agentapi.FrameExit:
			err = writeMessage(ctx, conn, message(f))
		}
		if err != nil {
			return nil // the client is gone
		}
	}
}

// receive carries stdin and control from the client until it is gone.
func receive(ctx context.Context, conn *websocket.Conn, session *command.Session) {
	stdin := func(p []byte) error { _, err := session.Write(p); return err }
	messages(ctx, conn, stdin, func(c wire.AttachControl) {
		switch c.Type {
		case wire.StreamResize:
			_ = session.Resize(ctx, agentapi.Size{Rows: c.Rows, Cols: c.Cols})
		case wire.StreamSignal:
			_ = session.Signal(ctx, c.Signal)
		case wire.StreamStdinEOF:
			_ = session.CloseStdin()
		}
	})
}

// messages gives the client's messages to stdin, piece by piece, and to control,
// until the client is gone. A command that reads nothing makes the server hold no
// more than a piece, however long the message.
func messages(ctx context.Context, conn *websocket.Conn, stdin func([]byte) error, control func(wire.AttachControl)) {
	piece := make([]byte, stdinPiece)
	for {
		kind, r, err := conn.Reader(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			err = stdinMessage(r, piece, stdin)
		} else {
			err = controlMessage(r, control)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r) // a message that is not for us
		}
		if err != nil {
			return
		}
	}
}

// stdinMessage gives the bytes after the channel byte to stdin. It is no error if stdin takes only
// a part, but then the rest of the message is dropped: input has no holes.
func stdinMessage(r io.Reader, piece []byte, stdin func([]byte) error) error {
	n, err := io.ReadFull(r, piece[:1])
	if n == 0 || piece[0] != wire.ChannelStdin {
		return ignoreEOF(err)
	}
	for {
		n, err := r.Read(piece)
		if err != nil && err != io.EOF {
			return err // the bytes before the break are still masked: they are no input
		}
		if n > 0 && stdin(piece[:n]) != nil || err != nil {
			return nil
		}
	}
}

func controlMessage(r io.Reader, control func(wire.AttachControl)) error {
	data, err := io.ReadAll(io.LimitReader(r, controlMax))
	if err != nil {
		return err
	}
	var c wire.AttachControl
	if json.Unmarshal(data, &c) == nil { // a newer client's message is not worth ending the command
		control(c)
	}
	return nil
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func writeMessage(ctx context.Context, conn *websocket.Conn, m wire.StreamMessage) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return write(ctx, conn, websocket.MessageText, b)
}

func write(ctx context.Context, conn *websocket.Conn, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return conn.Write(ctx, kind, b)
}
