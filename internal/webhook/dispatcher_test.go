package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// staleQueue is a queue whose second look returns a delivery that has arrived meanwhile.
type staleQueue struct {
	Queue
	url    string
	looks  int
	before func() // called before the second look returns
}

func (q *staleQueue) Waiting(context.Context) ([]Waiting, error) {
	return []Waiting{{Workspace: "w", Webhook: "h", User: "u", Answered: true, Pending: 1}}, nil
}

func (q *staleQueue) Due(context.Context, ID, time.Time, int) (Webhook, []Delivery, error) {
	if q.looks++; q.looks == 2 {
		q.before()
	}
	return Webhook{ID: "h", Workspace: "w", URL: q.url}, []Delivery{{ID: "d", Webhook: "h", Workspace: "w", State: Pending}}, nil
}

// settled has the sandboxes for which Settle was called.
type settled struct{ sync.Map }

func (s *settled) Settle(id sandbox.ID) { s.Store(id, true) }

func (*staleQueue) Record(context.Context, Delivery, Outcome) (bool, error) { return false, nil }

type plainKeys struct{ Keys }

func (plainKeys) Unseal(secret.Sealed, string) (string, error) { return "whsec_AAAA", nil }

// TestStaleLookSendsNothing checks that a delivery is not sent again by a look at the store that began
// before the delivery was recorded.
func TestStaleLookSendsNothing(t *testing.T) {
	var requests atomic.Int64
	answer := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		<-answer
	}))
	defer receiver.Close()
	q := &staleQueue{url: receiver.URL}
	d := newDispatcher(q, &settled{}, plainKeys{}, newSender(loopback), slog.New(slog.DiscardHandler))
	defer d.Close()
	freed := d.freed.Wait()
	q.before = func() {
		close(answer)
		<-freed
	}
	if _, err := d.dispatch(); err != nil {
		t.Fatal(err)
	}
	d.work.Wait()
	if q.looks < 2 || requests.Load() != 1 {
		t.Errorf("%d looks sent the delivery %d times, want once", q.looks, requests.Load())
	}
}

// TestSettledDelivery checks that a receiver gets an event only when its change is seen in the sandbox.
func TestSettledDelivery(t *testing.T) {
	sandboxes, seen := &settled{}, false
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		_, seen = sandboxes.Load(sandbox.ID("a"))
	}))
	defer receiver.Close()
	d := newDispatcher(&staleQueue{}, sandboxes, plainKeys{}, newSender(loopback), slog.New(slog.DiscardHandler))
	defer d.Close()
	d.deliver(&Webhook{ID: "h", URL: receiver.URL}, &Delivery{ID: "d", Event: sandbox.Event{Seq: 1, Sandbox: "a"}})
	if !seen {
		t.Error("the receiver got the event before the change was waited for")
	}
}
