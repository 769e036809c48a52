package client_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// secret is the secret of the webhook; a receiver reads it from where you keep secrets.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// work has the deliveries that the receiver has accepted.
var work = make(chan *client.WebhookMessage, 100)

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return
	}
	message, err := client.VerifyWebhook(r.Header, body, secret)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	select {
	case work <- message: // message.ID, message.Type, message.Event
		w.WriteHeader(http.StatusNoContent)
	default: // the server sends it again later
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// A receiver checks the signature before it trusts a delivery, answers first, and handles each delivery once.
func ExampleVerifyWebhook() {
	for range 2 { // a delivery can come twice
		req := delivery(secret, "msg_1", time.Now(), `{"type":"failed","timestamp":"2026-01-01T00:00:00Z","data":{"seq":7,"sandbox_name":"my-agent","type":"failed"}}`)
		receive(httptest.NewRecorder(), req)
	}
	known := map[string]bool{} // a database that outlives the process
	for range 2 {
		if m := <-work; !known[m.ID] {
			known[m.ID] = true
			fmt.Println(m.Event.SandboxName, m.Type)
		}
	}
	// Output: my-agent failed
}

// TestReceiver checks the receiver of docs/webhooks.md, which is the receiver above.
func TestReceiver(t *testing.T) {
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("verifywebhook_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	example, _, found := strings.Cut(rest, "```\n")
	if !found || !strings.Contains(string(source), "\n"+example+"\n") {
		t.Errorf("this file does not have the receiver of docs/webhooks.md:\n%s", example)
	}
	answer := httptest.NewRecorder()
	receive(answer, delivery("whsec_AAAA", "msg_1", time.Now(), "{}"))
	if answer.Code != http.StatusUnauthorized {
		t.Errorf("the receiver answers %d to another signature", answer.Code)
	}
}

// delivery returns a request as the server makes it.
func delivery(secret, id string, at time.Time, body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", signature(secret, id, at, body))
	return req
}

func signature(secret, id string, at time.Time, body string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestVerifyWebhook(t *testing.T) {
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	const body = `{"type":"created","timestamp":"2026-01-01T00:00:00Z","data":{"seq":3,"sandbox_id":"s","type":"created","data":{"k":"v"}}}`
	now := time.Now()
	for name, c := range map[string]struct {
		change  func(http.Header)
		body    string
		secrets []string
		valid   bool
	}{
		"valid":               {valid: true},
		"the first of two":    {secrets: []string{secret, other}, valid: true},
		"the second of two":   {secrets: []string{other, secret}, valid: true},
		"another secret":      {secrets: []string{other}},
		"no secret":           {secrets: []string{}},
		"another body":        {body: body + " "},
		"another id":          {change: func(h http.Header) { h.Set("webhook-id", "msg_2") }},
		"without an id":       {change: func(h http.Header) { h.Del("webhook-id") }},
		"without a time":      {change: func(h http.Header) { h.Del("webhook-timestamp") }},
		"without a signature": {change: func(h http.Header) { h.Del("webhook-signature") }},
		"a time of letters":   {change: func(h http.Header) { h.Set("webhook-timestamp", "now") }},
		"another time": {change: func(h http.Header) {
			h.Set("webhook-timestamp", strconv.FormatInt(now.Unix()-1, 10))
		}},
		"an old delivery": {change: func(h http.Header) {
			for k, v := range delivery(secret, "msg_1", now.Add(-6*time.Minute), body).Header {
				h[k] = v
			}
		}},
		"a delivery of the future": {change: func(h http.Header) {
			for k, v := range delivery(secret, "msg_1", now.Add(6*time.Minute), body).Header {
				h[k] = v
			}
		}},
		"signatures by several secrets": {valid: true, change: func(h http.Header) {
			h.Set("webhook-signature", signature(other, "msg_1", now, body)+" v1a,AAAA v1,= "+h.Get("webhook-signature"))
		}},
		"another version": {change: func(h http.Header) {
			h.Set("webhook-signature", "v2"+strings.TrimPrefix(h.Get("webhook-signature"), "v1"))
		}},
	} {
		if c.secrets == nil {
			c.secrets = []string{secret}
		}
		if c.body == "" {
			c.body = body
		}
		h := delivery(secret, "msg_1", now, body).Header
		if c.change != nil {
			c.change(h)
		}
		m, err := client.VerifyWebhook(h, []byte(c.body), c.secrets...)
		if c.valid && (err != nil || m.ID != "msg_1" || m.Type != "created" || m.Timestamp.Year() != 2026 || m.Event.Seq != 3 || m.Event.Data["k"] != "v") {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if !c.valid && !errors.Is(err, client.ErrWebhook) {
			t.Errorf("%s: %+v, %v; want ErrWebhook", name, m, err)
		}
	}
	h := delivery(secret, "msg_1", now, "text").Header
	if m, err := client.VerifyWebhook(h, []byte("text"), secret); !errors.Is(err, client.ErrWebhook) {
		t.Errorf("a body that is not JSON: %+v, %v", m, err)
	}
	for _, bad := range []string{"", "whsec_", "whsec_no base64"} {
		_, err := client.VerifyWebhook(h, []byte("text"), bad)
		if err == nil || errors.Is(err, client.ErrWebhook) || strings.Contains(err.Error(), "no base64") {
			t.Errorf("the secret %q: %v", bad, err)
		}
	}
}
