package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// TestFollowEvents checks that a stream goes on after its last message over any number of
// connections, and what ends it.
func TestFollowEvents(t *testing.T) {
	var last []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last = append(last, r.Header.Get("Last-Event-ID"))
		switch len(last) {
		case 1:
			if got := r.URL.Query(); r.URL.Path != "/v1/events/stream" || got.Get("sandbox") != "a" || !slices.Equal(got["type"], []string{"created", "exec"}) {
				t.Errorf("asked %s", r.URL)
			}
			fmt.Fprint(w, "retry: 1000\nid: 4\n\nid: 5\ndata: {\"seq\":5,\ndata: \"type\":\"exec\"}\n\nid: 6\ndata: {\"seq\":6")
		case 2:
			fmt.Fprint(w, ": ping\nid: 9\n\n")
		case 3:
			http.Error(w, "restarting", http.StatusServiceUnavailable)
		case 4:
			fmt.Fprint(w, "id: 10\ndata: {\"seq\":10}\n\nevent: problem\ndata: {\"code\":\"unauthenticated\",\"detail\":\"revoked\"}\n\n")
		default:
			t.Errorf("connection %d", len(last))
		}
	})
	var seqs []int64
	var ended error
	for e, err := range c.Events.Follow(t.Context(), client.FollowOptions{Sandbox: "a", Types: []string{"created", "exec"}, AfterSeq: 3}) {
		if err != nil {
			ended = err
			break
		}
		seqs = append(seqs, e.Seq)
	}
	if !slices.Equal(seqs, []int64{5, 10}) || !slices.Equal(last, []string{"3", "5", "9", "9"}) {
		t.Errorf("events %v by connections after %q; want 5 and 10 after 3, 5, 9 and 9", seqs, last)
	}
	if !errors.Is(ended, client.Unauthenticated) {
		t.Errorf("the stream ended with %v, want code unauthenticated", ended)
	}
}

// TestFollowEventsFails checks that the first connection must work, and that a context and the
// loop end a stream.
func TestFollowEventsFails(t *testing.T) {
	n := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		http.Error(w, "no", http.StatusForbidden)
	})
	for _, err := range c.Events.Follow(t.Context(), client.FollowOptions{}) {
		if !errors.Is(err, client.Forbidden) {
			t.Errorf("the stream ended with %v, want code forbidden", err)
		}
	}
	if n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	c = serve(t, func(w http.ResponseWriter, r *http.Request) {
		for seq := range 2 {
			fmt.Fprintf(w, "id: %d\ndata: {\"seq\":%d}\n\n", seq+1, seq+1)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for e, err := range c.Events.Follow(t.Context(), client.FollowOptions{}) {
		if err != nil || e.Seq != 1 {
			t.Errorf("event %d, %v", e.Seq, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended error
	for e, err := range c.Events.Follow(ctx, client.FollowOptions{Since: time.Now()}) {
		ended = err
		if e.Seq == 2 {
			cancel()
		}
	}
	cancel()
	if !errors.Is(ended, context.Canceled) {
		t.Errorf("the stream ended with %v, want the context's error", ended)
	}
}
