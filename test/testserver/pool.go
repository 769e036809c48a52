package testserver

import (
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/modbox/modbox/client"
)

var blankBoxes = regexp.MustCompile(`(?m)^modbox_pool_blank_boxes ([0-9]+)$`)

// AwaitBlankBox waits until the pool has a box that fits any image.
func (s *Server) AwaitBlankBox() {
	s.t.Helper()
	for deadline := time.Now().Add(timeLimit); ; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get(s.URL + "/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		n := blankBoxes.FindSubmatch(body)
		switch {
		case n == nil:
			s.t.Fatalf("no number of blank boxes in the metrics:\n%s", body)
		case string(n[1]) != "0":
			return
		case time.Now().After(deadline):
			s.t.Fatalf("no blank box in %v", timeLimit)
		}
	}
}

// FromPool reports whether a sandbox was given a box of the pool.
func (s *Server) FromPool(id string) bool {
	s.t.Helper()
	for ev, err := range s.Sandboxes.Events(id, client.EventsOptions{}).All(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		if ev.Data["from_pool"] == "true" {
			return true
		}
	}
	return false
}
