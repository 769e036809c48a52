package apitest

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// part is the part of the shards that a server has, with the files that it shares with the servers of the other parts.
type part struct {
	dir    string         // of its files; "" for a new one
	ranges sandbox.Ranges // 0 for all
	token  string         // of the first server
	others *forward.Forwarder
}

// NewParts starts n servers that work at the same time on a PostgreSQL database and directory, each on a part of the shards and with boxes of
// its own; the first is the primary. They forward requests to each other. People sign in with the providers. It skips the test without PostgreSQL.
func NewParts(t testing.TB, n int, providers ...sso.Provider) []*Server {
	t.Helper()
	return newParts(t, n, options{providers: providers})
}

// NewPartsLimited is NewParts with the limits of [NewLimited].
func NewPartsLimited(t testing.TB, n, sandboxes int, quotas quota.Limits) []*Server {
	t.Helper()
	return newParts(t, n, options{lives: lifecycle.Config{MaxSandboxes: sandboxes, Quota: quotas}})
}

// elsewhereVariable is the environment variable with which a test has a server whose client sends all requests but creates to another server.
const elsewhereVariable = "MODBOX_TEST_ELSEWHERE"

// start returns a server; with the variable one of two, which has the sandboxes.
func start(t testing.TB, o options) *Server {
	t.Helper()
	if os.Getenv(elsewhereVariable) == "" {
		return newServer(t, o)
	}
	parts := newParts(t, 2, o)
	s, client := *parts[0], *parts[0].HTTP
	client.Transport = elsewhere{client.Transport, strings.TrimPrefix(parts[0].URL, "http://"), strings.TrimPrefix(parts[1].URL, "http://")}
	s.HTTP = &client
	return &s
}

// NotElsewhere skips a test with the variable.
func NotElsewhere(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(elsewhereVariable) != "" {
		t.Skip(why)
	}
}

// elsewhere sends requests for a host to another host, except requests that create sandboxes.
type elsewhere struct {
	http.RoundTripper
	of, to string
}

// RoundTrip implements [http.RoundTripper].
func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	creates := r.Method == http.MethodPost && (strings.HasSuffix(path, "/sandboxes") || strings.HasSuffix(path, "/provision") || strings.HasSuffix(path, "/sandbox"))
	if r.URL.Host == e.of && !creates {
		r = r.Clone(r.Context())
		r.Host, r.URL.Host = cmp.Or(r.Host, e.of), e.to
	}
	return e.RoundTripper.RoundTrip(r)
}

func newParts(t testing.TB, n int, o options) []*Server {
	t.Helper()
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	p := part{dir: t.TempDir()}
	var list []*Server
	var servers []forward.Server
	var forwarders []*forward.Forwarder
	for _, p.ranges = range sandbox.Parts(n) {
		p.others = forward.New(forward.Config{
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			},
			Caller: func(*http.Request) string { return "" }, Max: 1000, Log: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(p.others.Close)
		o.part = p
		s := newServer(t, o)
		s.watchRights()
		p.token = s.Token
		peers := httptest.NewServer(forward.Accept(s.Front))
		t.Cleanup(func() {
			peers.CloseClientConnections()
			peers.Close()
		})
		list, forwarders = append(list, s), append(forwarders, p.others)
		servers = append(servers, forward.Server{Ranges: p.ranges, Address: peers.Listener.Addr().String(), Epoch: 1})
	}
	for _, f := range forwarders {
		f.Lead(servers...)
	}
	return list
}

// watchRights makes the server notice changes of rights by the others, until the test ends.
func (s *Server) watchRights() {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.Store.WatchRights(ctx, time.Minute, s.Auth.Recheck, slog.New(slog.DiscardHandler)) })
	s.T.Cleanup(func() {
		cancel()
		watching.Wait()
	})
}

func (p *part) openStore(t testing.TB, keys *secret.Keys) *store.Store {
	t.Helper()
	path := filepath.Join(p.dir, "modbox.db")
	if p.ranges == 0 {
		return storetest.Open(t, path, store.WithKeys(keys))
	}
	at := storetest.At(t, path)
	at.Postgres.Ranges = p.ranges
	s, err := store.OpenAt(t.Context(), at, store.WithKeys(keys))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
