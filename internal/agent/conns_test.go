package agent_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/modbox/modbox/internal/agent"
)

// TestDeadConnections stops the host's side of a connection in the middle of a call, without
// closing it.
func TestDeadConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := agent.New(agent.Options{Root: t.TempDir()})
		defer a.Close()
		ours, theirs := net.Pipe()
		l := &listener{conns: make(chan net.Conn, 1)}
		l.conns <- theirs
		go a.Serve(l)
		host := &mute{Conn: ours}
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{
			Protocols:   &protocols,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return host, nil },
		}
		never, more := io.Pipe()
		defer more.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent/exec", never)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			resp, err := transport.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			ended <- err
		}()
		synctest.Wait()
		host.silent.Store(true)
		if err := <-ended; err == nil { // blocks forever if the agent does not notice
			t.Error("the call was answered, want its connection closed")
		}
	})
}

// listener accepts the connections that it is given.
type listener struct{ conns chan net.Conn }

func (l *listener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	close(l.conns)
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "agent"} }

// mute is a connection that drops everything written once it is silent.
type mute struct {
	net.Conn
	silent atomic.Bool
}

func (m *mute) Write(p []byte) (int, error) {
	if m.silent.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}
