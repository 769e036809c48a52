package agentapi

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A connection can be given up after its dial has completed but before adopt, when cancelling the
// dial has no effect any more. Then adopt must close it.
func TestConnectionGivenUpWhileItIsMadeIsClosed(t *testing.T) {
	ours, theirs := net.Pipe()
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, theirs)
		closed <- err
	}()
	p := &pool{}
	c := &conn{pool: p, window: StreamWindow, ready: make(chan struct{}), cancel: func() {}}
	p.dial = func(context.Context) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.close()
		return ours, nil
	}
	c.connect(t.Context())
	if !errors.Is(c.err, net.ErrClosed) || c.cc != nil {
		t.Errorf("a connection that was given up has the error %v and is used: %v", c.err, c.cc != nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Error("it is open for ever")
		ours.Close()
	}
}
