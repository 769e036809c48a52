package lifecycle_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

// host is the machine that lives on while servers come and go.
type host struct {
	*fake.Host
	t *testing.T
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "box") // shorter than t.TempDir: sockets may live below
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Host: fake.NewHost(dir), t: t}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), os.RemoveAll(dir)); err != nil {
			t.Errorf("clean up the host: %v", err)
		}
	})
	return h
}

// open returns a driver for the host that knows no box yet.
func (h *host) open() driver.Driver { return fake.New(h.Host) }

// ids returns the boxes on the host, the oldest first.
func (h *host) ids() []sandbox.ID {
	d := h.open()
	defer func() { _ = d.Close() }()
	ids, err := d.List(context.Background())
	if err != nil {
		h.t.Errorf("List: %v", err)
	}
	slices.Sort(ids)
	return ids
}

// destroy removes a box behind the server's back.
func (h *host) destroy(id sandbox.ID) {
	h.t.Helper()
	d := h.open()
	defer func() { _ = d.Close() }()
	if err := d.Destroy(h.t.Context(), id); err != nil {
		h.t.Fatal(err)
	}
}

// serve has h answer on a port of a box, once that is there, until the end of the test.
func (h *host) serve(id sandbox.ID, port uint16, handler http.Handler) {
	h.t.Helper()
	eventually(h.t, "the box is there", func() bool { return slices.Contains(h.ids(), id) })
	l, err := h.Listen(id, port)
	if err != nil {
		h.t.Fatal(err)
	}
	srv := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.t.Errorf("Serve: %v", err)
		}
	}()
	h.t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
}
