package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

// ShortTTL lets callers of a service with this config ask for any ttl or idle timeout from min on.
func (c Config) ShortTTL(min time.Duration) Config {
	c.shortest = timelimit.Bounds{TTL: min, Idle: min}
	return c
}

// TransferTimeout has saving a sandbox wait so long for transfers.
func (c Config) TransferTimeout(d time.Duration) Config {
	c.transferTimeout = d
	return c
}

// PauseWait has a pause without memory wait so long for the ends of processes.
func (c Config) PauseWait(d time.Duration) Config {
	c.pauseWait = d
	return c
}

// AgentTimeout has executions and commands wait so long for an agent to answer.
func (c Config) AgentTimeout(d time.Duration) Config {
	c.agentTimeout, c.commandTimeout = d, d
	return c
}

// SaveAutomatically makes the automatic checkpoint of a sandbox now, if it is needed.
func (s *Service) SaveAutomatically(id sandbox.ID) { s.automatic.Save(s.ctx, id) }

// WaitingBoots returns how many sandboxes wait for their turn to boot.
func (s *Service) WaitingBoots() int { return s.suspender.starter.slots.Waiting() }

// Sweep looks for what is stuck or orphaned now.
func (s *Service) Sweep() { s.sweeper.sweep() }

// Purge removes everything whose retention time has passed.
func (s *Service) Purge() { s.sweeper.purge() }

// Ready returns the resources of the boxes in the pool, in no order.
func (s *Service) Ready() []sandbox.Resources {
	var ready []sandbox.Resources
	for kind, n := range s.pool.Ready() {
		for range n {
			ready = append(ready, kind.Resources)
		}
	}
	return ready
}

// PlanPool decides anew what the pool shall hold and makes that.
func (s *Service) PlanPool() {
	s.warm.Plan()
	s.warm.Fill()
}
