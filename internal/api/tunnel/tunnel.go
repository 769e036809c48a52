// Package tunnel has the route of /v1 that connects a client with a TCP port of a sandbox.
package tunnel

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// piece is the size of the buffer in each direction.
	piece = 32 << 10
	// controlMax bounds a control message of the client.
	controlMax = 4 << 10
	// closeTime bounds the end of a connection after its client has lost its rights.
	closeTime = 3 * time.Second
	// needs is the permission that a connection needs all the time.
	needs = account.SandboxesWrite
)

// operation is the operation of [Tunnels.serve].
var operation = huma.Operation{
	OperationID: "connect-port", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/ports/{port}/connect", Tags: []string{"ports"},
	Summary: "Connect to a TCP port over a WebSocket",
	Description: "A connection to a port of the sandbox's loopback or interface, which need not be published. Binary messages carry its bytes, in both directions. The text message `{\"type\":\"eof\"}` says that no more bytes come from its sender; bytes in the other direction go on. " +
		"The server closes the WebSocket with status 1000 when both directions have ended, with 1011 when the connection broke, and with 1008 when the token lost its rights. The server pings every 15 seconds. A paused sandbox is resumed; a pause does not break the connection.",
	Parameters: []*huma.Param{route.SandboxParam(), {Name: "port", In: "path", Required: true, Schema: &huma.Schema{Type: "integer", Minimum: number(1), Maximum: number(65535)}, Description: "The port."}},
	Responses:  map[string]*huma.Response{"101": {Description: "The WebSocket"}},
}

func number(n float64) *float64 { return &n }

// Rights knows the rights of tokens. [auth.Authenticator] implements it.
type Rights interface {
	// StillPermits returns nil while the user has the permission, see [auth.Authenticator.StillPermits].
	StillPermits(ctx context.Context, user sandbox.UserID, token string, ws sandbox.WorkspaceID, p account.Permission) error
	// Changed returns a channel that is closed at the next change of permissions.
	Changed() <-chan struct{}
}

// Sandboxes finds sandboxes. [lifecycle.Service] implements it.
type Sandboxes interface {
	// Get returns the sandbox that ref, an id or a name, means to the caller. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error)
}

// Tunnels are the connections of clients to ports. All fields must be set, but for a description of the route.
type Tunnels struct {
	Sandboxes Sandboxes
	Guest     *guest.Calls
	Rights    Rights
	// Ping is the interval of pings.
	Ping   time.Duration
	Logger *slog.Logger
}

// Register adds the route.
func (t *Tunnels) Register(m *route.Mux) { m.Raw(operation, t.serve) }

// serve answers a request with a connection to a port.
func (t *Tunnels) serve(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return sandbox.InvalidField("port", "must be 1 to 65535")
	}
	sb, err := t.Sandboxes.Get(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"))
	if err != nil {
		return err
	}
	if r.Header.Get("Upgrade") == "" {
		return sandbox.Errorf(sandbox.Invalid, "this route answers with a WebSocket; the request must ask for it")
	}
	entry := audit.FromContext(r.Context())
	entry.Detail("port", strconv.Itoa(int(port)))
	if err := entry.Begin(r.Context()); err != nil {
		return err
	}
	inside, err := t.Guest.Dial(r.Context(), sb.ID, uint16(port))
	if err != nil {
		return err
	}
	defer inside.Close()
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(wire.AttachReadLimit)
	entry.Start()
	t.carry(r.Context(), conn, inside)
	return nil
}

// carry copies between a client and a port until both directions have ended, or the client is gone or has lost
// its rights.
func (t *Tunnels) carry(ctx context.Context, conn *websocket.Conn, inside net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
	go t.ping(ctx, cancel, conn)
	go t.watch(ctx, conn, inside)
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		if receive(ctx, conn, inside) {
			close(ended)
			drain(ctx, conn)
		}
		cancel()
	}()
	status := websocket.StatusNormalClosure
	if err := send(ctx, conn, inside); err != nil {
		status = websocket.StatusInternalError
	} else {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	_ = conn.Close(status, "") // a client that is gone needs no answer
	cancel()
	conn.CloseNow()
	<-gone
}

// send copies from the port to the client, with the end of the bytes.
func send(ctx context.Context, conn *websocket.Conn, inside net.Conn) error {
	buf := make([]byte, piece)
	for {
		n, err := inside.Read(buf)
		if n > 0 {
			if err := conn.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return conn.Write(ctx, websocket.MessageText, []byte(wire.TunnelEOF))
		}
		if err != nil {
			return err
		}
	}
}

// receive copies from the client to the port until the client's end of its bytes, or until the port takes no
// more. It returns false if the client is gone.
func receive(ctx context.Context, conn *websocket.Conn, inside net.Conn) bool {
	buf := make([]byte, piece)
	for {
		kind, r, err := conn.Reader(ctx)
		switch {
		case err != nil:
			return false
		case kind == websocket.MessageText && ends(r):
			if half, ok := inside.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // a port that is gone has ended as well
			}
			return true
		case kind == websocket.MessageText:
			continue
		}
		for {
			n, err := r.Read(buf)
			if n > 0 {
				if _, err := inside.Write(buf[:n]); err != nil {
					return true
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return false
			}
		}
	}
}

// ends reports whether a control message is the end of the client's bytes. It reads all of it.
func ends(r io.Reader) bool {
	data, err := io.ReadAll(io.LimitReader(r, controlMax))
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, r) // the next read has the error
	var m wire.TunnelMessage
	return json.Unmarshal(data, &m) == nil && m.Type == wire.TunnelEnd
}

// drain reads until the client is gone, for its answers to pings. Its messages have no meaning any more.
func drain(ctx context.Context, conn *websocket.Conn) {
	for {
		_, r, err := conn.Reader(ctx)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return
		}
	}
}

// watch ends the connection when the client's token loses its rights.
func (t *Tunnels) watch(ctx context.Context, conn *websocket.Conn, inside net.Conn) {
	id, _ := auth.FromContext(ctx)
	var expired <-chan time.Time
	if !id.Expires.IsZero() {
		timer := time.NewTimer(time.Until(id.Expires))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		changed := t.Rights.Changed() // before the check
		err := t.Rights.StillPermits(ctx, id.User, id.TokenID, id.Workspace, needs)
		if code := sandbox.CodeOf(err); ctx.Err() == nil && (code == sandbox.Unauthenticated || code == sandbox.Forbidden) {
			break
		} else if err != nil && ctx.Err() == nil {
			t.Logger.ErrorContext(ctx, "check the rights of a connection to a port", "error", err)
		}
		select {
		case <-changed:
			continue
		case <-expired:
		case <-ctx.Done():
			return
		}
		break
	}
	timer := time.AfterFunc(closeTime, func() { _ = conn.CloseNow() })
	defer timer.Stop()
	_ = conn.Close(websocket.StatusPolicyViolation, "the token lost its rights") // the end follows in any case
	_ = inside.Close()
}

// ping keeps a silent connection alive until ctx ends, and calls gone when it cannot. A client that does not
// answer may be busy.
func (t *Tunnels) ping(ctx context.Context, gone context.CancelFunc, conn *websocket.Conn) {
	tick := time.NewTicker(t.Ping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answer, cancel := context.WithTimeout(ctx, max(t.Ping, 10*time.Second))
		err := conn.Ping(answer)
		late := answer.Err() != nil
		cancel()
		if err != nil && !late {
			gone()
			return
		}
	}
}
