package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store/webhookrows"
	"github.com/modbox/modbox/internal/webhook"
)

// received is a request to a receiver.
type received struct {
	header http.Header
	body   []byte
	event  struct {
		Type string
		Data struct {
			Seq         int64
			SandboxName string `json:"sandbox_name"`
			Type        string
		}
	}
}

// valid reports which of the signatures are by a secret.
func (r *received) valid(t *testing.T, secret string) (list []bool) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.header.Get("webhook-id"), r.header.Get("webhook-timestamp"), r.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for s := range strings.FieldsSeq(r.header.Get("webhook-signature")) {
		list = append(list, s == want)
	}
	return list
}

// receiver is an HTTP server that gets deliveries.
type receiver struct {
	*httptest.Server
	requests chan received

	mu     sync.Mutex
	answer http.HandlerFunc // guarded by mu
}

func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{requests: make(chan received, 1000), answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got := received{header: req.Header}
		got.body, _ = io.ReadAll(req.Body)
		if err := json.Unmarshal(got.body, &got.event); err != nil {
			t.Errorf("a delivery has the body %q: %v", got.body, err)
		}
		r.requests <- got
		r.mu.Lock()
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func makeWebhook(s *apitest.Server, url string, types ...string) (w wire.NewWebhook) {
	s.T.Helper()
	s.Want(201, "POST", "/v1/webhooks", map[string]any{"url": url, "types": types}).Into(s.T, &w)
	return w
}

// ping sends a test and waits for the end of its first attempt.
func ping(s *apitest.Server, id string) (d wire.WebhookDelivery) {
	s.T.Helper()
	s.Want(201, "POST", "/v1/webhooks/"+id+"/test", nil).Into(s.T, &d)
	return attempted(s, id, d.ID)
}

// attempted waits until a delivery had an attempt.
func attempted(s *apitest.Server, id, delivery string) (d wire.WebhookDelivery) {
	s.T.Helper()
	s.Want(200, "GET", "/v1/webhooks/"+id+"/deliveries/"+delivery+"?wait_seconds=60", nil).Into(s.T, &d)
	if d.Attempts == 0 {
		s.T.Fatalf("no attempt was made: %+v", d)
	}
	return d
}

func TestWebhookGetsEvents(t *testing.T) {
	s := apitest.New(t)
	all, some := newReceiver(t, nil), newReceiver(t, nil)
	hook := makeWebhook(s, all.URL+"/all")
	other := makeWebhook(s, some.URL, "destroyed")
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	s.Want(200, "DELETE", "/v1/sandboxes/a", nil)
	end := <-some.requests
	if end.event.Type != "destroyed" || end.event.Data.SandboxName != "a" || !slices.Equal(end.valid(t, other.Secret), []bool{true}) {
		t.Errorf("the webhook for destroyed got %s with %v", end.body, end.header)
	}
	var types []string
	ids := map[string]bool{}
	for !slices.Contains(types, "destroyed") {
		r := <-all.requests
		types = append(types, r.event.Type)
		ids[r.header.Get("webhook-id")] = true
		if !slices.Equal(r.valid(t, hook.Secret), []bool{true}) || r.event.Data.Type != r.event.Type || r.event.Data.Seq == 0 {
			t.Errorf("the webhook got %s with %v", r.body, r.header)
		}
	}
	if !slices.Equal(types, []string{"created", "running", "destroying", "destroyed"}) || len(ids) != 4 {
		t.Errorf("the events were %v with ids %v, want each once, in their order", types, ids)
	}
	page := attemptsOf(s, hook.ID)
	for _, d := range page {
		if d.State != "delivered" || d.Attempts != 1 || d.Status != 200 || !ids[d.ID] || d.EndedAt == nil || d.NextAttemptAt != nil {
			t.Errorf("the delivery is %+v", d)
		}
	}
	if len(page) != 4 || page[0].Type != "destroyed" {
		t.Errorf("there are %d deliveries, the first %s, want 4, the newest first", len(page), page[0].Type)
	}
	for _, path := range []string{"/v1/webhooks", "/v1/webhooks/" + hook.ID, "/v1/webhooks/" + hook.ID + "/deliveries", "/v1/audit?limit=1000"} {
		if a := s.Want(200, "GET", path, nil); strings.Contains(string(a.Body), "whsec_") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if strings.Contains(s.Log.String(), "whsec_") {
		t.Error("the log has a secret")
	}
}

// attemptsOf returns the deliveries of a webhook after all have ended.
func attemptsOf(s *apitest.Server, id string) []wire.WebhookDelivery {
	s.T.Helper()
	var page wire.Page[wire.WebhookDelivery]
	s.Want(200, "GET", "/v1/webhooks/"+id+"/deliveries", nil).Into(s.T, &page)
	for i, d := range page.Items {
		page.Items[i] = attempted(s, id, d.ID)
	}
	return page.Items
}

func TestWebhookFailsAndDeliversAgain(t *testing.T) {
	s := apitest.New(t)
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	})
	hook := makeWebhook(s, r.URL)
	d := ping(s, hook.ID)
	first := <-r.requests
	if d.State != "pending" || d.Status != 500 || d.Error != "the receiver answered 500" || d.Response != "out of order\n" || d.NextAttemptAt == nil || d.Type != "ping" {
		t.Errorf("after a failure the delivery is %+v", d)
	}
	var w wire.Webhook
	s.Want(200, "GET", "/v1/webhooks/"+hook.ID, nil).Into(t, &w)
	if w.Pending != 1 || w.FailingSince == nil {
		t.Errorf("after a failure the webhook is %+v", w)
	}
	r.answers(nil)
	for range 2 { // of a delivery that waits, and of the delivery that has arrived
		s.Want(200, "POST", "/v1/webhooks/"+hook.ID+"/deliveries/"+d.ID+"/redeliver", nil)
		if again := attempted(s, hook.ID, d.ID); again.State != "delivered" || again.Attempts != 1 || again.Error != "" {
			t.Errorf("again, the delivery is %+v", again)
		}
		if got := <-r.requests; got.header.Get("webhook-id") != first.header.Get("webhook-id") || string(got.body) != string(first.body) {
			t.Errorf("again, the receiver got %s with %v, want the same as before", got.body, got.header)
		}
	}
	w = wire.Webhook{}
	s.Want(200, "GET", "/v1/webhooks/"+hook.ID, nil).Into(t, &w)
	if w.Pending != 0 || w.FailingSince != nil {
		t.Errorf("after a success the webhook is %+v", w)
	}
	r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	d = ping(s, hook.ID)
	w = wire.Webhook{}
	s.Want(200, "GET", "/v1/webhooks/"+hook.ID, nil).Into(t, &w)
	if d.State != "failed" || w.Enabled || !strings.Contains(w.DisabledReason, "410") {
		t.Errorf("after 410 the delivery is %+v and the webhook %+v", d, w)
	}
	s.Want(409, "POST", "/v1/webhooks/"+hook.ID+"/test", nil)
	s.Want(409, "POST", "/v1/webhooks/"+hook.ID+"/deliveries/"+d.ID+"/redeliver", nil)
	r.answers(nil)
	w = wire.Webhook{}
	s.Want(200, "PATCH", "/v1/webhooks/"+hook.ID, map[string]any{"enabled": true}).Into(t, &w)
	if d = ping(s, hook.ID); d.State != "delivered" || !w.Enabled || w.DisabledReason != "" {
		t.Errorf("enabled again, the webhook is %+v and a test %+v", w, d)
	}
}

// TestSlowReceiversStopNoOthers has a receiver that never answers beside a fast one, in one workspace.
func TestSlowReceiversStopNoOthers(t *testing.T) {
	s := apitest.New(t)
	release := make(chan struct{})
	var open atomic.Int64
	var answered atomic.Bool
	slow := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		if !answered.Load() {
			return
		}
		if n := open.Add(1); n > 2 {
			t.Errorf("the slow receiver has %d requests at once, more than its places", n)
		}
		defer open.Add(-1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	fast := newReceiver(t, nil)
	hooks := []string{makeWebhook(s, slow.URL, "created").ID, makeWebhook(s, fast.URL, "created").ID}
	if d := ping(s, hooks[0]); d.State != "delivered" {
		t.Fatalf("a test of the receiver that is slow later: %+v", d)
	}
	<-slow.requests
	answered.Store(true)
	for range 4 { // two wait for a place
		s.Want(201, "POST", "/v1/webhooks/"+hooks[0]+"/test", nil)
	}
	<-slow.requests
	<-slow.requests
	for i := range 20 {
		if d := ping(s, hooks[1]); d.State != "delivered" {
			t.Errorf("test %d beside a slow receiver: %+v", i, d)
		}
	}
}

func TestWebhookRotation(t *testing.T) {
	s := apitest.New(t)
	r := newReceiver(t, nil)
	hook := makeWebhook(s, r.URL)
	var next, last wire.NewWebhook
	s.Want(200, "POST", "/v1/webhooks/"+hook.ID+"/rotate", nil).Into(t, &next)
	ping(s, hook.ID)
	got := <-r.requests
	if next.Secret == hook.Secret || !slices.Equal(got.valid(t, next.Secret), []bool{true, false}) || !slices.Equal(got.valid(t, hook.Secret), []bool{false, true}) {
		t.Errorf("after a rotation the signatures are %s", got.header.Get("webhook-signature"))
	}
	s.Want(200, "POST", "/v1/webhooks/"+hook.ID+"/rotate", map[string]any{"overlap_seconds": 0}).Into(t, &last)
	ping(s, hook.ID)
	if got = <-r.requests; !slices.Equal(got.valid(t, last.Secret), []bool{true}) {
		t.Errorf("after a rotation without overlap the signatures are %s", got.header.Get("webhook-signature"))
	}
	s.Want(422, "POST", "/v1/webhooks/"+hook.ID+"/rotate", map[string]any{"overlap_seconds": 86401})
}

// TestWebhookSecretsHaveNewKeys checks that both secrets of a webhook are encrypted anew when the keys of
// the server change, and work on.
func TestWebhookSecretsHaveNewKeys(t *testing.T) {
	s := apitest.New(t)
	r := newReceiver(t, nil)
	hook := makeWebhook(s, r.URL)
	var next wire.NewWebhook
	s.Want(200, "POST", "/v1/webhooks/"+hook.ID+"/rotate", nil).Into(t, &next)
	for range 2 { // the first change keeps the key before
		if n, err := s.Keys.Rotate(t.Context(), s.Store.Secrets); err != nil || n != 2 {
			t.Fatalf("new keys: %d secrets, %v, want 2", n, err)
		}
	}
	if d := ping(s, hook.ID); d.State != "delivered" {
		t.Fatalf("with new keys the delivery is %+v", d)
	}
	if got := <-r.requests; !slices.Equal(got.valid(t, next.Secret), []bool{true, false}) || !slices.Equal(got.valid(t, hook.Secret), []bool{false, true}) {
		t.Errorf("with new keys the signatures are %s", got.header.Get("webhook-signature"))
	}
}

// TestNextServerDelivers checks that a delivery whose attempt the server's end interrupts is sent again.
func TestNextServerDelivers(t *testing.T) {
	s := apitest.New(t)
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	hook := makeWebhook(s, r.URL)
	s.Want(201, "POST", "/v1/webhooks/"+hook.ID+"/test", nil)
	first := <-r.requests
	s.Webhooks.Close()
	r.answers(nil)
	keys, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	rows, config := webhookrows.New(s.Store.DB), webhook.Config{MaxPerWorkspace: 3, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	logger := slog.New(slog.NewTextHandler(s.Log, nil))
	other := webhook.New(config, rows, rows, s.Lifecycle, keys, logger) // without the key of the secret
	other.Start()
	defer other.Close()
	ws, _, err := s.Store.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := other.Delivery(t.Context(), ws, webhook.ID(hook.ID), first.header.Get("webhook-id"), time.Minute)
	if err != nil || d.Error != "the secret of the webhook cannot be read; rotate it" {
		t.Errorf("without the key of the secret the delivery is %+v, %v", d, err)
	}
	other.Close()
	next := webhook.New(config, rows, rows, s.Lifecycle, s.Keys, logger)
	next.Start()
	defer next.Close()
	if _, err := next.Redeliver(t.Context(), ws, webhook.ID(hook.ID), d.ID); err != nil {
		t.Fatal(err)
	}
	if again := <-r.requests; again.header.Get("webhook-id") != first.header.Get("webhook-id") || !slices.Equal(again.valid(t, hook.Secret), []bool{true}) {
		t.Errorf("the next server sent %v, want %v", again.header, first.header)
	}
}

func TestWebhookRequests(t *testing.T) {
	s := apitest.New(t)
	hook := makeWebhook(s, "https://a.example/hook", "created", "created", "failed")
	if !slices.Equal(hook.Types, []string{"created", "failed"}) || !hook.Enabled || !strings.HasPrefix(hook.Secret, "whsec_") {
		t.Errorf("the webhook is %+v", hook)
	}
	for _, c := range []struct{ body, field string }{
		{`{}`, "body"},
		{`{"url":""}`, "url"},
		{`{"url":"ftp://a.example"}`, "url"},
		{`{"url":"https://u:p@a.example"}`, "url"},
		{`{"url":"https://a.example","types":["created","nonsense"]}`, "types"},
		{`{"url":"https://a.example","description":"` + strings.Repeat("é", 256) + `"}`, "description"},
	} {
		var problem struct {
			Code   string
			Errors []struct{ Location string }
		}
		s.Want(422, "POST", "/v1/webhooks", c.body).Into(t, &problem)
		if len(problem.Errors) != 1 || problem.Errors[0].Location != c.field || problem.Code != "invalid" {
			t.Errorf("%.60s is answered %+v, want invalid, field %s", c.body, problem, c.field)
		}
	}
	var w wire.Webhook
	s.Want(200, "PATCH", "/v1/webhooks/"+hook.ID, `{"description":"d","types":[],"enabled":false}`).Into(t, &w)
	if w.Description != "d" || len(w.Types) != 0 || w.Enabled || w.URL != hook.URL {
		t.Errorf("changed, the webhook is %+v", w)
	}
	var page wire.Page[wire.Webhook]
	for range 99 {
		makeWebhook(s, "https://b.example")
	}
	s.Want(200, "GET", "/v1/webhooks?limit=2", nil).Into(t, &page)
	if len(page.Items) != 2 || page.Items[0].ID != hook.ID || page.NextCursor == nil {
		t.Errorf("the list is %+v", page)
	}
	s.Want(429, "POST", "/v1/webhooks", `{"url":"https://a.example"}`)
	s.Want(204, "DELETE", "/v1/webhooks/"+hook.ID, nil)
	s.Want(404, "GET", "/v1/webhooks/"+hook.ID, nil)
	s.Want(404, "DELETE", "/v1/webhooks/"+hook.ID, nil)
	s.Want(404, "GET", "/v1/webhooks/"+hook.ID+"/deliveries", nil)
	s.Want(201, "POST", "/v1/webhooks", `{"url":"https://a.example"}`)
}
