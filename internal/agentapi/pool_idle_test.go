package agentapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// TestIdleConnections counts the connections to an agent during calls with pauses between them, one
// of which is longer than idle connections stay open.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				time.Sleep(time.Minute)
			}
			io.WriteString(w, "{}")
		})}
		defer server.Close()
		dials := 0
		c := agentapi.NewClient(func(context.Context) (net.Conn, error) {
			dials++
			ours, theirs := net.Pipe()
			go server.Serve(&oneConn{done: make(chan struct{}), conn: theirs})
			return ours, nil
		})
		defer c.Close()
		for i, step := range []struct {
			pause time.Duration
			call  func() error
			dials int
		}{
			{0, func() error { _, err := c.Health(t.Context()); return err }, 1},
			{5 * time.Second, func() error { _, err := c.Health(t.Context()); return err }, 1},
			{9 * time.Second, func() error { _, err := c.Stat(t.Context(), "/x"); return err }, 1}, // a minute
			{9 * time.Second, func() error { _, err := c.Health(t.Context()); return err }, 1},
			{11 * time.Second, func() error { _, err := c.Health(t.Context()); return err }, 2},
		} {
			time.Sleep(step.pause)
			if err := step.call(); err != nil || dials != step.dials {
				t.Errorf("call %d: %v after %d connections, want %d", i, err, dials, step.dials)
			}
		}
	})
}
