package webhookrows_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/webhook"
)

// settled are sandboxes whose changes are all seen.
type settled struct{}

func (settled) Settle(sandbox.ID) {}

// plainKeys has the same secret for all webhooks.
type plainKeys struct{ webhook.Keys }

func (plainKeys) Unseal(secret.Sealed, string) (string, error) { return "whsec_AAAA", nil }

// receivers is an HTTP server with a receiver at each path, whose first part is the user of its webhook.
type receivers struct {
	*httptest.Server
	began   time.Time
	arrived chan string // the ids of deliveries to receivers that answer

	mu         sync.Mutex
	open, most int            // requests at once to receivers that answer; guarded by mu
	hanging    map[string]int // all requests to others, by user; guarded by mu
	late       []string       // violations of the limits; guarded by mu
}

func newReceivers(t *testing.T) *receivers {
	t.Helper()
	r := &receivers{arrived: make(chan string, 10_000), hanging: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// places are the places that the webhooks of users have whose receivers never answer.
var places = map[string]int{"hangs-new": 4, "hangs-now": 16}

func (r *receivers) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // before it, the server does not notice that the client goes
	user := strings.Split(req.URL.Path, "/")[1]
	if n := places[user]; n > 0 {
		r.hang(user, n)
		<-req.Context().Done()
		return
	}
	r.mu.Lock()
	r.open++
	r.most = max(r.most, r.open)
	r.mu.Unlock()
	r.arrived <- req.Header.Get("webhook-id")
	r.mu.Lock()
	r.open-- // before the answer
	r.mu.Unlock()
}

// hang counts a request that has no answer. Each takes its place for 15 seconds, which the server gives a
// receiver, so at any time there were at most as many requests as the places allow since the beginning.
func (r *receivers) hang(user string, places int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hanging[user]++
	since := time.Since(r.began)
	if most := places * (1 + int(since/(15*time.Second))); r.hanging[user] > most {
		r.late = append(r.late, fmt.Sprintf("%s after the start, the receivers of %s have got %d requests, want at most %d", since, user, r.hanging[user], most))
	}
}

// TestThousandWebhooks has two users with 16 workspaces each, all of whose receivers never answer, beside
// 31 users with a workspace. Each workspace has 16 webhooks, and each webhook has two deliveries.
func TestThousandWebhooks(t *testing.T) {
	w := newWorld(t)
	r := newReceivers(t)
	workspaces := 0
	add := func(user string, n int, answered bool) {
		w.exec("INSERT INTO users (id, name, created_at) VALUES ($1, $1, 1)", user)
		for range n {
			workspaces++
			ws := fmt.Sprint("w", workspaces)
			w.exec("INSERT INTO workspaces (id, name, created_by, created_at) VALUES ($1, $1, $2, 1)", ws, user)
			w.exec(`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 16)
				INSERT INTO webhooks (id, workspace_id, url, description, types, enabled, secret, created_by, created_at, updated_at, answered)
				SELECT $1 || '-' || n, $1, $2, '', '', 1, '', $3, 1, 1, $4 FROM numbers`, ws, r.URL+"/"+user+"/"+ws, user, answered)
		}
	}
	add("hangs-new", 16, false)
	add("hangs-now", 16, true)
	for i := range 31 {
		add(fmt.Sprint("answers", i), 1, false)
	}
	const each, answering = 2, 31 * 16
	w.fill(each, "TRUE")
	s := webhook.New(webhook.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, w.Rows, w.Rows, settled{}, plainKeys{}, slog.New(slog.DiscardHandler))
	r.began = time.Now()
	s.Start()
	defer s.Close()
	seen := map[string]bool{}
	for limit := time.After(5 * time.Minute); len(seen) < each*answering; {
		select {
		case id := <-r.arrived:
			seen[id] = true
		case <-limit:
			t.Fatalf("beside receivers that never answer, %d of %d deliveries have arrived", len(seen), each*answering)
		}
	}
	s.Close() // attempts under way end, and are recorded or repeated by the next server
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("at most %d requests at once to receivers that answer; requests to others: %v", r.most, r.hanging)
	for _, text := range r.late {
		t.Error(text)
	}
	for user := range places {
		if r.hanging[user] == 0 {
			t.Errorf("the receivers of %s have got no request", user)
		}
	}
	if r.most > 64 {
		t.Errorf("receivers that answer have got %d requests at once, want at most 64", r.most)
	}
	if all := w.count("TRUE"); all != each*(answering+2*16*16) {
		t.Errorf("there are %d deliveries, want %d", all, each*(answering+2*16*16))
	}
}
