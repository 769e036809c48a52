package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// ShortTTL lets callers of a service with this config ask for any ttl or idle timeout from min on.
func (c Config) ShortTTL(min time.Duration) Config {
	c.ttlMin, c.idleMin = min, min
	return c
}

// Sweep looks for what is stuck or orphaned now.
func (s *Service) Sweep() { s.sweep() }

// Purge forgets what was kept for long enough now.
func (s *Service) Purge() { s.purge() }

// Ready returns the resources of the boxes in the pool, in no order.
func (s *Service) Ready() []sandbox.Resources {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	var ready []sandbox.Resources
	for t, list := range s.pool.ready {
		for range list {
			ready = append(ready, t.resources)
		}
	}
	return ready
}

// PlanPool decides anew what the pool shall hold and makes that.
func (s *Service) PlanPool() {
	s.planPool()
	s.fillPool()
}
