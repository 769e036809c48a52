package sshd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshd"
)

// elsewhere connects to the SSH servers of the other parts.
type elsewhere struct {
	*forward.Forwarder
}

func (e elsewhere) Connect(ctx context.Context, part int, client net.Addr, login []byte) (net.Conn, error) {
	return e.Open(ctx, part, client, login, func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
}

// startParts starts two servers that know each other, each with a sandbox, which is named after it.
func startParts(t *testing.T) []*fixture {
	t.Helper()
	key, err := sshd.HostKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var list []*fixture
	var servers []forward.Server
	var all []*forward.Forwarder
	for n, s := range apitest.NewParts(t, 2) {
		f := forward.New(forward.Config{Caller: func(r *http.Request) string { return r.RemoteAddr }, Max: 100, Log: s.SSH().Logger})
		t.Cleanup(f.Close)
		deps := s.SSH()
		deps.Others = elsewhere{f}
		x := &fixture{Server: s, ssh: sshd.New(sshd.Config{}, key, deps), hostKey: key.PublicKey()}
		clients, peers := listen(), listen()
		x.address = clients.Addr().String()
		served := make(chan error, 2)
		go func() { served <- x.ssh.Serve(clients) }()
		go func() { served <- x.ssh.Serve(forward.AcceptConns(peers)) }()
		t.Cleanup(func() {
			x.ssh.Close()
			for range 2 {
				if err := <-served; err != nil {
					t.Error(err)
				}
			}
		})
		servers = append(servers, forward.Server{Ranges: s.Store.Owner().Ranges(), Address: peers.Addr().String(), Epoch: 1})
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprint("x", n), "wait_seconds": 180})
		list, all = append(list, x), append(all, f)
	}
	for _, f := range all {
		f.Lead(servers...)
	}
	return list
}

// TestSandboxOfOtherServer: the SSH server of each of several servers leads to the sandboxes of all.
func TestSandboxOfOtherServer(t *testing.T) {
	parts := startParts(t)
	for n := range parts {
		f, other := parts[n], fmt.Sprint("x", 1-n)
		c := f.login(other)
		long := strings.Repeat("0123456789", 300_000)
		if out, _, status := run(t, c, "cat", long); out != long || status != 0 {
			t.Errorf("%d bytes of %d came back, with status %d", len(out), len(long), status)
		}
		if out, errs, status := run(t, c, "echo out; echo err >&2; exit 5", ""); out != "out\n" || errs != "err\n" || status != 5 {
			t.Errorf("a command has written %q and %q, and ended with %d", out, errs, status)
		}
		terminal(t, c)
		if conn, err := c.Dial("tcp", "localhost:1"); err == nil {
			_ = conn.Close()
			t.Error("a closed port of the sandbox is open")
		} else if !strings.Contains(err.Error(), "nothing listens") {
			t.Errorf("a closed port: %v", err)
		}
	}
}

// terminal checks that a session has a terminal that is resized.
func terminal(t *testing.T, c *ssh.Client) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 11, 22, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "echo be''gun; exit 3\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil || !strings.Contains(string(text), "begun") {
		t.Errorf("the terminal shows %q, %v", text, err)
	}
	if err, ok := s.Wait().(*ssh.ExitError); !ok || err.ExitStatus() != 3 {
		t.Errorf("the shell has ended with %v", err)
	}
}

// TestRightsAtOtherServer: a connection ends at the server of the sandbox when its login loses its rights.
func TestRightsAtOtherServer(t *testing.T) {
	parts := startParts(t)
	var made struct{ ID, Token string }
	parts[0].Want(201, "POST", "/v1/tokens", map[string]any{}).Into(t, &made)
	c, _, err := parts[0].dial("x1", ssh.Password(made.Token))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	parts[0].Want(204, "DELETE", "/v1/tokens/"+made.ID, nil)
	if err := s.Wait(); err == nil {
		t.Error("the command has ended without an error")
	}
	_ = c.Wait()
	if _, _, err := parts[0].dial("x1", ssh.Password(made.Token)); err == nil {
		t.Error("the token that was deleted still logs in")
	}
}

// TestOwnerOfShellAway: a client learns that the server of its sandbox is away.
func TestOwnerOfShellAway(t *testing.T) {
	parts := startParts(t)
	deps := parts[0].SSH()
	deps.Others = unreachable{}
	key, err := sshd.HostKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: parts[0].Server, ssh: sshd.New(sshd.Config{}, key, deps), hostKey: key.PublicKey()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.ssh.Serve(l) }()
	defer func() {
		f.ssh.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c, _, err := f.dial("x1", ssh.Password(f.Token))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.NewSession(); err == nil || !strings.Contains(err.Error(), "it is away") {
		t.Errorf("a session: %v", err)
	}
}

// unreachable are other servers that are away.
type unreachable struct{}

func (unreachable) Connect(context.Context, int, net.Addr, []byte) (net.Conn, error) {
	return nil, sandbox.Errorf(sandbox.Unavailable, "it is away")
}
