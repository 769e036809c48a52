package lifecycle_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// host is what lives on while servers come and go: boxes in memory.
type host struct {
	mu    sync.Mutex
	boxes map[sandbox.ID]*hostBox
	mute  bool // agents of boxes to come accept connections and say nothing
}

type hostBox struct {
	started bool
	exit    driver.Exit
	ended   chan struct{} // closed at its end
	agent   net.Listener
	ports   map[uint16]net.Listener
}

func newHost() *host { return &host{boxes: map[sandbox.ID]*hostBox{}} }

// open returns a driver for the host that knows no box yet.
func (h *host) open() driver.Driver { return &hostDriver{host: h, known: map[sandbox.ID]bool{}} }

func (h *host) ids() []sandbox.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := []sandbox.ID{}
	for id := range h.boxes {
		ids = append(ids, id)
	}
	return ids
}

// crash ends a box from inside.
func (h *host) crash(id sandbox.ID, exit driver.Exit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.boxes[id]; b != nil {
		b.end(exit)
	}
}

func (b *hostBox) end(exit driver.Exit) {
	select {
	case <-b.ended:
	default:
		b.exit = exit
		close(b.ended)
		if b.agent != nil {
			_ = b.agent.Close()
		}
	}
}

type hostDriver struct {
	host  *host
	known map[sandbox.ID]bool // guarded by host.mu
}

func (d *hostDriver) box(id sandbox.ID) (*hostBox, error) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if b := d.host.boxes[id]; b != nil && d.known[id] {
		return b, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no box %s", id)
}

func (d *hostDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Name: "host", Survives: true}
}

func (d *hostDriver) Create(_ context.Context, spec driver.Spec) (driver.Handle, error) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.boxes[spec.ID] != nil {
		return nil, sandbox.Errorf(sandbox.Exists, "box %s exists", spec.ID)
	}
	d.host.boxes[spec.ID] = &hostBox{ended: make(chan struct{}), ports: map[uint16]net.Listener{}}
	d.known[spec.ID] = true
	return driver.Handle(spec.ID), nil
}

func (d *hostDriver) Start(_ context.Context, id sandbox.ID) error {
	b, err := d.box(id)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	b.started, b.agent = true, l
	if !d.host.mute {
		go serveAgent(l)
	}
	return nil
}

// serve has h answer on a port of a box until the end of the test.
func (h *host) serve(t *testing.T, id sandbox.ID, port uint16, handler http.Handler) {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	eventually(t, "the box is there", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		b := h.boxes[id]
		if b != nil {
			b.ports[port] = srv.Listener
		}
		return b != nil
	})
}

func serveAgent(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /configure", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /exec", func(w http.ResponseWriter, r *http.Request) {
		if _, err := agentapi.NewFrameReader(r.Body).Next(); err != nil {
			return
		}
		out, _ := agentapi.AppendJSONFrame(nil, agentapi.FrameStarted, agentapi.Started{})
		out, _ = agentapi.AppendJSONFrame(out, agentapi.FrameExit, agentapi.Exit{Code: 7})
		_, _ = w.Write(out)
	})
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	_ = srv.Serve(l)
	_ = srv.Close()
}

func (d *hostDriver) Recover(_ context.Context, id sandbox.ID, h driver.Handle) error {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	b := d.host.boxes[id]
	if b == nil || !b.started || string(h) != string(id) {
		return sandbox.Errorf(sandbox.NotFound, "no box %s", id)
	}
	select {
	case <-b.ended:
		return sandbox.Errorf(sandbox.NotFound, "box %s has ended", id)
	default:
	}
	d.known[id] = true
	return nil
}

func (d *hostDriver) Wait(ctx context.Context, id sandbox.ID) (driver.Exit, error) {
	b, err := d.box(id)
	if err != nil {
		return driver.Exit{}, err
	}
	select {
	case <-b.ended:
		return b.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (d *hostDriver) Destroy(_ context.Context, id sandbox.ID) error {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if b := d.host.boxes[id]; b != nil {
		b.end(driver.Exit{Cause: sandbox.CauseDestroyed})
		delete(d.host.boxes, id)
	}
	return nil
}

func (d *hostDriver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	b, err := d.box(id)
	if err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	l := b.ports[port]
	if port == driver.AgentPort {
		l = b.agent
	}
	d.host.mu.Unlock()
	if l == nil {
		return nil, sandbox.Errorf(sandbox.PortClosed, "port %d is closed", port)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", l.Addr().String())
}

func (d *hostDriver) Stats(context.Context, sandbox.ID) (sandbox.Stats, error) {
	return sandbox.Stats{}, errors.ErrUnsupported
}

func (d *hostDriver) List(context.Context) ([]sandbox.ID, error) { return d.host.ids(), nil }

func (d *hostDriver) Close() error { return nil }
