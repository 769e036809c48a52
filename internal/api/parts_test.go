package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestWebhooksOfParts: of several servers the primary alone makes the attempts, also for events of the sandboxes of others, each once.
func TestWebhooksOfParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	receiver := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	hook := makeWebhook(parts[1], receiver.URL, "created")
	if d := ping(parts[1], hook.ID); d.State != "delivered" || d.Attempts != 1 {
		t.Errorf("a test at the other server is %+v, want delivered at the first attempt", d)
	}
	<-receiver.requests
	const each = 8
	for i := range each {
		for n, s := range parts {
			s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprintf("w%d-%d", n, i)})
		}
	}
	got := map[string]int{}
	for len(got) < each*len(parts) {
		r := <-receiver.requests
		got[r.event.Data.SandboxName]++
	}
	for _, s := range parts { // nothing more is sent
		ping(s, hook.ID)
	}
	for range parts {
		<-receiver.requests
	}
	select {
	case r := <-receiver.requests:
		t.Errorf("another request was made: %s", r.body)
	default:
	}
	for name, n := range got {
		if n != 1 {
			t.Errorf("the creation of %s was delivered %d times, want once", name, n)
		}
	}
}

// noDisk is a disk without anything on it.
type noDisk struct{ quota.Disk }

func (noDisk) Unrecorded(sandbox.WorkspaceID) (none quota.UnrecordedDisk) { return none }
func (noDisk) CheckFree(int64) error                                      { return nil }

// TestWorkOfOtherParts: a server that starts ends what the server of its shards before it has left, and leaves the operations and the reservations
// of servers that run as they are.
func TestWorkOfOtherParts(t *testing.T) {
	const each = 6
	parts := apitest.NewParts(t, 2)
	ws, _, err := parts[0].Store.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	end := make(chan struct{})
	defer close(end)
	for n, s := range parts {
		for range each {
			if _, err := s.Lifecycle.Quotas().Reserve(t.Context(), ws, sandbox.Resources{}); err != nil {
				t.Fatal(err)
			}
			begun := make(chan struct{})
			work.Go(func() {
				if err := s.Audit.Do(context.Background(), audit.Record{Action: fmt.Sprint("test", n)}, func(context.Context) error {
					close(begun)
					<-end
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			<-begun
		}
	}
	interrupted := func(n int) int {
		t.Helper()
		p, err := parts[0].Store.Audit.AuditRows(t.Context(), audit.Filter{Action: fmt.Sprint("test", n), Outcome: audit.Interrupted, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(p.Items)
	}
	for n, s := range parts { // a next server of each part
		log := audit.Open(s.Store.Audit, audit.Config{Owner: s.Store.Owner()}, slog.New(slog.DiscardHandler))
		defer log.Close()
		if err := log.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		quotas := quota.New(quota.Config{Owner: s.Store.Owner()}, s.Store.Quotas, noDisk{}, slog.New(slog.DiscardHandler))
		if err := quotas.EndStale(t.Context()); err != nil {
			t.Fatal(err)
		}
		builds, err := s.Store.Quotas.Builds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := each * (len(parts) - 1 - n); len(builds) != want {
			t.Errorf("after the next server of part %d there are %d reservations, want %d", n, len(builds), want)
		}
		for other := range parts {
			want := 0
			if other <= n {
				want = each
			}
			if got := interrupted(other); got != want {
				t.Errorf("after the next server of part %d, %d operations of part %d are interrupted, want %d", n, got, other, want)
			}
		}
	}
}

// TestDeletionOfAWorkspaceOnParts: a workspace with sandboxes at several servers is emptied, whichever server has the request.
func TestDeletionOfAWorkspaceOnParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for n, s := range parts {
		var ws wire.WorkspaceDetail
		s.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "gone"}).Into(t, &ws)
		for _, s := range parts {
			for i := range 3 {
				r := s.Request("POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprintf("s%d-%s", i, s.Store.Ranges().Digits()), "wait_seconds": 60})
				r.Header.Set("X-Workspace-Id", ws.ID)
				if a := s.Send(r); a.Status != 201 {
					t.Fatalf("a sandbox in the workspace: %d %s", a.Status, a.Body)
				}
			}
		}
		s.Want(204, "DELETE", "/v1/workspaces/"+ws.ID, nil)
		s.Want(404, "GET", "/v1/workspaces/"+ws.ID, nil)
		live := func() int {
			p, err := s.Store.Sandboxes.ListSandboxes(t.Context(), sandbox.WorkspaceID(ws.ID), sandbox.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			return len(p.Items)
		}
		for late := time.After(45 * time.Second); ; { // the interval of the background work is longer
			committed := s.Store.Committed()
			if live() == 0 {
				break
			}
			select {
			case <-committed:
			case <-late:
				t.Fatalf("server %[2]d deletes a workspace, and %[1]d of its sandboxes are live", live(), n)
			}
		}
	}
}

// TestGuessesAtParts: wrong passwords count together, whichever server they come to.
func TestGuessesAtParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	parts[1].Want(201, "POST", "/v1/users", map[string]any{"name": "ada", "password": "correct horse"})
	refused := 0
	for n := range 12 {
		switch a := parts[n%2].Do("POST", "/v1/auth/login", map[string]any{"username": "ada", "password": "a guess"}); a.Status {
		case 401:
		case 429:
			refused++
		default:
			t.Fatalf("a guess: %d %s", a.Status, a.Body)
		}
	}
	if refused < 2 {
		t.Errorf("of 12 guesses at once %d were refused, want 2", refused)
	}
}

// TestEventsOfParts follows the events of sandboxes of all servers at each of them.
func TestEventsOfParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for _, at := range parts {
		stream := followEvents(t, at, "?type=created", "")
		stream.message() // its begin
		for n, s := range parts {
			name := fmt.Sprintf("e%s-%s", at.Store.Ranges().Digits(), s.Store.Ranges().Digits())
			s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": name})
			if m := stream.message(); !strings.Contains(m["data"], name) {
				t.Errorf("the event of a sandbox of server %d is %v", n, m)
			}
			var sb wire.Sandbox
			if at.Want(200, "GET", "/v1/sandboxes/"+name, nil).Into(t, &sb); sb.Name != name {
				t.Errorf("the sandbox of the event is %+v", sb)
			}
		}
	}
}

// TestCreatesInAMinuteAtParts: the creates of a workspace in a minute are limited together, also creates that come to different servers at once.
func TestCreatesInAMinuteAtParts(t *testing.T) {
	const most = 6
	parts := apitest.NewParts(t, 2)
	parts[1].Want(200, "PUT", "/v1/workspaces/default/quota", map[string]any{"creates_per_minute": most})
	parts[0].Want(200, "DELETE", "/v1/sandboxes/"+create(parts[0], "first"), nil)
	created := make(chan string, 4*most)
	var work sync.WaitGroup
	for i := range 2 * most {
		for n, s := range parts {
			work.Go(func() {
				switch a := s.Do("POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprintf("r%d-%d", n, i)}); {
				case a.Status == 201:
					created <- "x"
				case a.Status != 429 || a.Header.Get("Retry-After") == "":
					t.Errorf("a create: %d %s", a.Status, a.Body)
				}
			})
		}
	}
	work.Wait()
	if n := len(created); n < most-1 || n > most { // in the meantime there may be another
		t.Errorf("%d creates after the first were let through, want %d", n, most-1)
	}
	if a := parts[0].Do("POST", "/v1/sandboxes", map[string]any{"name": "second", "wait_for_quota_seconds": 60}); a.Status != 201 {
		t.Errorf("a create that waits: %d %s", a.Status, a.Body)
	}
}

// create makes a sandbox.
func create(s *apitest.Server, name string) string {
	s.T.Helper()
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": name})
	return name
}

// TestStatsOfParts: a stream of what the sandboxes of a workspace use has the sandboxes of all servers.
func TestStatsOfParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	want := map[string]bool{}
	for n, s := range parts {
		var sb wire.Sandbox
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprint("u", n), "wait_seconds": 60}).Into(t, &sb)
		want[sb.ID] = true
		used := sandbox.Usage{At: time.Now(), Running: 10 * time.Second, CPU: time.Second, MemoryByteSeconds: 10 << 20, SentBytes: 7}
		if err := s.Store.Usage.NoteUsage(t.Context(), map[sandbox.ID]sandbox.Usage{sandbox.ID(sb.ID): used}); err != nil {
			t.Fatal(err)
		}
	}
	stream := followEvents(t, parts[0], "?stats=1", "")
	for len(want) > 0 {
		for _, u := range stream.stats() {
			if !want[u.Sandbox] && !parts[0].Store.Ranges().Has(sandbox.ID(u.Sandbox)) {
				t.Errorf("a measurement comes twice: %+v", u)
			}
			if of := sandbox.ID(u.Sandbox); !parts[0].Store.Ranges().Has(of) && (u.Memory != 1<<20 || u.CPU != int64(time.Second)) {
				t.Errorf("the use of a sandbox of another server is %+v", u)
			}
			delete(want, u.Sandbox)
		}
	}
}

// TestCreateAtPartsAtOnce: creates with the same idempotency key, or the same name, that come to several servers at once make one sandbox.
func TestCreateAtPartsAtOnce(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for round := range 8 {
		for _, by := range []string{"key", "name"} {
			ids := make(chan string, 8)
			var work sync.WaitGroup
			for n := range cap(ids) {
				work.Go(func() {
					r := parts[n%2].Request("POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprint(by, round), "wait_seconds": 60 * (n % 4 / 2)})
					if by == "key" {
						r.Header.Set("Idempotency-Key", fmt.Sprint("key", round))
					}
					var sb wire.Sandbox
					if a := parts[n%2].Send(r); a.Status == 200 || a.Status == 201 {
						a.Into(t, &sb)
						ids <- sb.ID
					} else {
						t.Errorf("a create by %s at server %d: %d %s", by, n%2, a.Status, a.Body)
					}
				})
			}
			work.Wait()
			close(ids)
			first := <-ids
			for id := range ids {
				if id != first {
					t.Errorf("by %s two sandboxes are made: %s and %s", by, first, id)
				}
			}
			other := parts[round%2]
			other.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprint(by, round), "labels": map[string]string{"new": "yes"}, "replace": true, "wait_seconds": 60})
			var sb wire.Sandbox
			if other.Want(200, "GET", "/v1/sandboxes/"+fmt.Sprint(by, round), nil).Into(t, &sb); sb.ID == first || sb.Labels["new"] != "yes" {
				t.Errorf("after a replacement the sandbox is %+v", sb)
			}
		}
	}
}

// TestSlugAtParts: the former slug of a workspace names it at no server any more.
func TestSlugAtParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for n, s := range parts {
		other := parts[1-n]
		var ws wire.WorkspaceDetail
		s.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "x", "slug": fmt.Sprint("before", n)}).Into(t, &ws)
		in := func(slug string) int {
			r := other.Request("GET", "/v1/sandboxes", nil)
			r.Header.Set("X-Workspace-Id", slug)
			return other.Send(r).Status
		}
		if status := in(ws.Slug); status != 200 {
			t.Fatalf("by its slug: %d", status)
		}
		changed := other.Auth.Changed()
		s.Want(200, "PATCH", "/v1/workspaces/"+ws.ID, map[string]any{"slug": fmt.Sprint("after", n)})
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("the other server does not notice the change")
		}
		if before, after := in(ws.Slug), in(fmt.Sprint("after", n)); before != 404 || after != 200 {
			t.Errorf("by its former slug: %d, by its slug: %d; want 404 and 200", before, after)
		}
	}
}

// TestQuotaReleasedAtParts: a create that waits for a quota at a server is woken by the end of a sandbox at another.
func TestQuotaReleasedAtParts(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	parts[0].Want(200, "PUT", "/v1/workspaces/default/quota", map[string]any{"sandboxes": 1})
	for round := range 4 {
		n := round % 2
		create(parts[n], fmt.Sprint("q", round))
		created := make(chan int)
		go func() {
			created <- parts[1-n].Do("POST", "/v1/sandboxes", map[string]any{"name": "waits", "wait_for_quota_seconds": 60}).Status
		}()
		for parts[1-n].Lifecycle.Quotas().Waiting(home(t, parts[0])) == 0 {
			runtime.Gosched()
		}
		woken := parts[1-n].Lifecycle.Quotas().Changed()
		parts[n].Want(200, "DELETE", "/v1/sandboxes/"+fmt.Sprint("q", round), nil)
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Errorf("server %d is not told of the end of a sandbox at the other", 1-n)
		}
		if status := <-created; status != 201 {
			t.Errorf("the create that waited: %d", status)
		}
		parts[n].Want(200, "DELETE", "/v1/sandboxes/waits", nil)
	}
}
