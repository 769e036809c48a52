package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
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
