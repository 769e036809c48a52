package control_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// forwarded are the names of calls that are measured through a standby too.
var forwarded = map[string]string{
	"create, through a standby":                "create, until it runs",
	"get of a live sandbox, through a standby": "get of a live sandbox",
}

// plainly is a listener whose connections the HTTP server does not know as TLS, as it refuses the protocol of servers.
type plainly struct{ net.Listener }

// Accept implements [net.Listener].
func (l plainly) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{conn}, nil
}

// standby starts a standby, which forwards requests to the server over the connections that servers have, and returns its URL.
func (s *server) standby() (url string) {
	s.T.Helper()
	log := slog.New(slog.DiscardHandler)
	authority, err := worker.OpenAuthority(filepath.Join(s.T.TempDir(), "worker"))
	if err != nil {
		s.T.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.T.Fatal(err)
	}
	l := worker.Listen(plain, authority, worker.Uses{}, log) // no worker connects
	active := &http.Server{Handler: forward.Accept(s.Front)}
	served := make(chan error, 1)
	go func() { served <- active.Serve(plainly{l.FromServers(worker.Forwarded)}) }()
	f := forward.New(forward.Config{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return authority.Dial(ctx, address, worker.Forwarded)
		},
		Caller: func(r *http.Request) string { return r.RemoteAddr }, Max: 1024, Log: log,
	})
	f.Lead(forward.Server{Ranges: sandbox.AllRanges, Address: l.Addr().String(), Epoch: 1})
	front := httptest.NewServer(edge.Wrap(log, f))
	s.T.Cleanup(func() {
		front.Close()
		f.Close()
		_ = active.Close()
		_ = l.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.T.Errorf("the listener for standbys: %v", err)
		}
	})
	return front.URL
}
