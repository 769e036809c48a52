package agentapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// TestAgentThatStandsStill makes calls to an agent that is slow, and then stops answering.
func TestAgentThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		var still atomic.Bool
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if still.Load() {
				<-r.Context().Done()
				return
			}
			if r.URL.Path != "/health" {
				time.Sleep(time.Minute)
			}
			io.WriteString(w, "{}")
		})}
		defer server.Close()
		dials := 0
		memory := agentapi.NewMemory(64 << 20)
		memory.SetAnswerTimeout(4 * time.Second)
		c := memory.NewClient(func(context.Context) (net.Conn, error) {
			dials++
			ours, theirs := net.Pipe()
			go server.Serve(&oneConn{done: make(chan struct{}), conn: theirs})
			return ours, nil
		})
		defer c.Close()
		begin := time.Now()
		if _, err := c.Stat(t.Context(), "/x"); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("call that takes a minute: %v after %v", err, time.Since(begin))
		}
		still.Store(true)
		begin = time.Now()
		_, err := c.Stat(t.Context(), "/x")
		if took := time.Since(begin); !errors.Is(err, agentapi.ErrUnreachable) || took != 4*time.Second || dials != 1 {
			t.Errorf("call to an agent that stands still: %v after %v and %d dials, want ErrUnreachable after 4s and one", err, took, dials)
		}
		still.Store(false)
		if _, err := c.Health(t.Context()); err != nil || dials != 2 {
			t.Errorf("call to an agent that goes on: %v after %d dials, want none and 2", err, dials)
		}
	})
}
