package remote

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
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
			Open:   func() (driver.Driver, error) { return nil, errors.New("the server is accepted") },
			Accept: func(Control) error { return errors.New("the server is accepted") },
			Log:    slog.New(slog.DiscardHandler),
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

// TestAccepted checks that a connection counts when the server uses it, and not when the server has refused the worker.
func TestAccepted(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	host := fake.NewHost(t.TempDir())
	cache, err := rootcache.Open(t.TempDir(), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	accepted, ended := 0, 0 // by Serve, which has returned when the test reads them
	w := NewWorker(WorkerConfig{
		Open: func() (driver.Driver, error) { return fake.New(host), nil }, Cache: cache, Dir: filepath.Join(t.TempDir(), "dir"),
		Accept:   func(Control) error { return nil },
		Accepted: func() func() { accepted++; return func() { ended++ } },
		Log:      log,
	})
	d := New(Config{Log: log})
	// serve connects, does something if the worker is accepted, and ends the connection.
	serve := func(refusal error, use func()) {
		ours, theirs := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- w.Serve(t.Context(), ours) }()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if err := d.Ready(ctx); err == nil {
				use()
			}
			cancel()
		}()
		if err := d.Attach(ctx, theirs, func(Welcome) error { return refusal }); !errors.Is(err, refusal) {
			t.Errorf("Attach() = %v, want %v", err, refusal)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("Serve() = nil")
		}
	}
	serve(errors.New("the worker was removed"), func() { t.Error("the driver is ready") })
	if accepted != 0 {
		t.Errorf("a refused connection was accepted %d times", accepted)
	}
	serve(nil, func() {
		for range 2 {
			if _, err := d.List(t.Context()); err != nil {
				t.Errorf("List() = %v", err)
			}
		}
	})
	if accepted != 1 || ended != 1 {
		t.Errorf("accepted %d times, ended %d times, want 1 and 1", accepted, ended)
	}
	if err := errors.Join(d.Close(), w.Close(), host.Close()); err != nil {
		t.Error(err)
	}
}
