package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
)

// listening returns the port of a server that echoes, in the network that sandboxes of the fake driver have.
func listening(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestConnectPort(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "x", "wait_seconds": 180})
	port := listening(t)
	var token wire.NewToken
	s.Want(201, "POST", "/v1/tokens", map[string]any{}).Into(t, &token)
	c, err := client.New(s.URL, token.Secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hello", strings.Repeat("0123456789abcdef", 1<<16)} {
		conn, err := c.Sandboxes.Ports.Dial(t.Context(), "x", port)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(conn, text)
			_ = conn.CloseWrite()
		}()
		if b, err := io.ReadAll(conn); err != nil || string(b) != text {
			t.Errorf("%d bytes of %d came back, %v", len(b), len(text), err)
		}
		_ = conn.Close()
	}
	for ref, code := range map[string]client.Code{"x": client.PortClosed, "y": client.NotFound} {
		if _, err := c.Sandboxes.Ports.Dial(t.Context(), ref, 1); !client.IsCode(err, code) {
			t.Errorf("port 1 of %s: %v, want %s", ref, err, code)
		}
	}
	s.Want(http.StatusUnprocessableEntity, "GET", "/v1/sandboxes/x/ports/0/connect", nil)
	s.Want(http.StatusUnprocessableEntity, "GET", "/v1/sandboxes/x/ports/80/connect", nil)
	if log := string(s.Want(200, "GET", "/v1/audit?action=connect-port", nil).Body); !strings.Contains(log, `"port":"`) {
		t.Errorf("audit log: %s", log)
	}

	// The connection ends with the rights of its token.
	conn, err := c.Sandboxes.Ports.Dial(t.Context(), "x", port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s.Want(204, "DELETE", "/v1/tokens/"+token.ID, nil)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the token was revoked", n)
	}
}

// A client that goes away ends the connection in the sandbox.
func TestConnectPortGone(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "x", "wait_seconds": 180})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.New(s.URL, s.Token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := c.Sandboxes.Ports.Dial(ctx, "x", uint16(l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	inside, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	cancel()
	_ = conn.Close()
	if _, err := inside.Read(make([]byte, 1)); err == nil {
		t.Error("the connection in the sandbox sends bytes")
	}
}

// A sandbox has a short id: a beginning of its id that no other live sandbox of the workspace has.
func TestShortIDs(t *testing.T) {
	s := apitest.New(t)
	var a, b wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180}).Into(t, &a)
	s.Want(200, "GET", "/v1/sandboxes/"+a.ID[:8], nil)
	s.Want(200, "GET", "/v1/sandboxes/"+strings.ToUpper(a.ID[:20]), nil)
	s.Want(404, "GET", "/v1/sandboxes/"+a.ID[:5], nil)
	s.Want(404, "GET", "/v1/sandboxes/"+strings.ReplaceAll(a.ID, "-", "")[:12], nil)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "b", "wait_seconds": 180}).Into(t, &b)
	common := 0
	for a.ID[common] == b.ID[common] {
		common++
	}
	if common < 6 {
		t.Fatalf("ids %s and %s of the same second", a.ID, b.ID)
	}
	answer := string(s.Want(422, "GET", "/v1/sandboxes/"+a.ID[:common], nil).Body)
	if !strings.Contains(answer, a.ID) || !strings.Contains(answer, b.ID) {
		t.Errorf("an ambiguous id: %s, want both sandboxes in it", answer)
	}
	// A name goes before a short id, and a live sandbox before an ended one.
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": b.ID[:common+1], "wait_seconds": 180})
	var named wire.Sandbox
	s.Want(200, "GET", "/v1/sandboxes/"+b.ID[:common+1], nil).Into(t, &named)
	if named.ID == b.ID {
		t.Error("a short id went before a name")
	}
	s.Want(200, "DELETE", "/v1/sandboxes/"+named.ID, nil)
	s.Want(200, "DELETE", "/v1/sandboxes/"+b.ID, nil)
	var left wire.Sandbox
	s.Want(200, "GET", "/v1/sandboxes/"+a.ID[:common], nil).Into(t, &left)
	if left.ID != a.ID {
		t.Errorf("short id of the live sandbox: %s", left.ID)
	}
	// Another workspace has no part in it, and the names of the Modbox platform are no short ids.
	var ws wire.Workspace
	s.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "other"}).Into(t, &ws)
	r := s.Request("GET", "/v1/sandboxes/"+a.ID[:20], nil)
	r.Header.Set("X-Workspace-Id", ws.ID)
	if got := s.Send(r); got.Status != 404 {
		t.Errorf("short id of another workspace: %d %s", got.Status, got.Body)
	}
	s.Want(404, "GET", "/sandboxes/detail/"+a.ID[:20], nil)
}
