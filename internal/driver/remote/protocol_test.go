package remote

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver"
)

// TestAnotherVersion checks that server and worker of another version refuse each other, and say why.
func TestAnotherVersion(t *testing.T) {
	t.Run("Worker", func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { // an earlier worker says no version
			mux, err := yamux.Client(theirs, muxConfig(1), nil)
			if err != nil {
				return
			}
			defer mux.Close()
			stream, err := mux.AcceptStream()
			var hello request
			if err == nil && readMessage(stream, maxMessage, &hello) == nil {
				_ = writeMessage(stream, &response{Welcome: &Welcome{}})
			}
			_, _ = mux.AcceptStream() // until the connection ends
		}()
		d := New(Config{Log: slog.New(slog.DiscardHandler)})
		defer d.Close()
		err := d.Attach(t.Context(), ours, func(Welcome) error { return errors.New("the worker is accepted") })
		if err == nil || !strings.Contains(err.Error(), "the worker speaks version 1 of the workers' protocol, and this server 3") {
			t.Errorf("Attach() = %v", err)
		}
	})
	t.Run("Server", func(t *testing.T) {
		ours, theirs := net.Pipe()
		w := NewWorker(WorkerConfig{
			Open:  func() (driver.Driver, error) { return nil, errors.New("the server is accepted") },
			Admit: func(Control) error { return errors.New("the server is accepted") },
			Log:   slog.New(slog.DiscardHandler),
		})
		done := make(chan error, 1)
		go func() { done <- w.Serve(t.Context(), ours) }()
		s, err := newSession(theirs)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.call(t.Context(), &request{Op: opHello, Hello: &Control{Protocol: 1}})
		if err == nil || !strings.Contains(err.Error(), "the server speaks version 1 of the workers' protocol, and this worker 3") {
			t.Errorf("hello = %v", err)
		}
		_ = s.mux.Close()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "version 1") {
			t.Errorf("Serve() = %v", err)
		}
	})
}
