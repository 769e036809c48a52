package lifecycle

import "time"

// ShortTTL lets callers of a service with this config ask for any ttl or idle timeout from min on.
func (c Config) ShortTTL(min time.Duration) Config {
	c.ttlMin, c.idleMin = min, min
	return c
}

// Sweep looks for what is stuck or orphaned now.
func (s *Service) Sweep() { s.sweep() }
