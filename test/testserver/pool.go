package testserver

import "github.com/modbox/modbox/client"

// AwaitBlankBox waits until the pool has a box that fits any image.
func (s *Server) AwaitBlankBox() {
	s.t.Helper()
	s.AwaitMetric("modbox_pool_blank_boxes", 1)
}

// FromPool reports whether a sandbox was given a box of the pool.
func (s *Server) FromPool(id string) bool { return s.from("from_pool", id) }

// FromTemplate reports whether a sandbox was restored from a memory template.
func (s *Server) FromTemplate(id string) bool { return s.from("from_template", id) }

// from reports whether an event of a sandbox has data of a name.
func (s *Server) from(name, id string) bool {
	s.t.Helper()
	for ev, err := range s.Sandboxes.Events(id, client.EventsOptions{}).All(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		if ev.Data[name] == "true" {
			return true
		}
	}
	return false
}
