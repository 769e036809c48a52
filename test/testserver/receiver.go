package testserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// AllowReceivers are the arguments of a server whose webhooks can reach a [Receiver].
var AllowReceivers = []string{"--webhooks-allow-cidrs", "127.0.0.1/32"}

// Receiver gets the deliveries of webhooks on this host.
type Receiver struct {
	*httptest.Server
	// Block makes it leave requests without an answer until their senders go away.
	Block atomic.Bool

	t          testing.TB
	deliveries chan delivery
}

// delivery is a request to a receiver.
type delivery struct {
	header http.Header
	body   []byte
}

// NewReceiver starts a receiver that accepts every delivery; it ends with the test.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{t: t, deliveries: make(chan delivery, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		block := r.Block.Load()
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the sender was killed
		}
		r.deliveries <- delivery{req.Header, body}
		if block {
			<-req.Context().Done()
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// Next waits for a delivery and verifies it.
func (r *Receiver) Next(secret string) *client.WebhookMessage {
	r.t.Helper()
	select {
	case d := <-r.deliveries:
		m, err := client.VerifyWebhook(d.header, d.body, secret)
		if err != nil {
			r.t.Fatalf("a delivery with the header %v: %v", d.header, err)
		}
		return m
	case <-time.After(timeLimit):
		r.t.Fatalf("no delivery came within %s", timeLimit)
		return nil
	}
}
