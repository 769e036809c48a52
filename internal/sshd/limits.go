package sshd

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Connections that have not logged in: from one address (IPv6: a /64), and in all.
	strangersPerAddress = 10
	strangersInAll      = 100
	// Open channels: each may buffer 2 MiB that the sandbox does not take.
	channelsPerConnection = 32
	channelsPerUser       = 64
	channelsInAll         = 256
)

// counter counts places in use, by key and in all. It is safe for concurrent use.
type counter struct {
	perKey, inAll int // the limits; 0 is none

	mu   sync.Mutex
	used map[string]int // guarded by mu; without zeros
	sum  int            // guarded by mu
}

func newCounter(perKey, inAll int) *counter {
	return &counter{perKey: perKey, inAll: inAll, used: map[string]int{}}
}

// take takes a place for the key, which the caller gives back by calling release once. It returns
// nil when the key, or all keys together, have no place left.
func (c *counter) take(key string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.perKey > 0 && c.used[key] >= c.perKey || c.inAll > 0 && c.sum >= c.inAll {
		return nil
	}
	c.used[key]++
	c.sum++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sum--
		if c.used[key]--; c.used[key] == 0 {
			delete(c.used, key)
		}
	})
}

func tooMany(what string) error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "too many %s; close some, or try again in a moment", what)
}
