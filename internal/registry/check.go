package registry

import (
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// CheckTime is how long every failing check takes, and how long a registry may take to answer. The
// fixed duration hides the reason of the failure: otherwise a quick refusal of a port, an unknown
// name and an address without answer would reveal which hosts listen where.
const CheckTime = 10 * time.Second

const (
	// checksOfWorkspace is how many concurrent checks a workspace may have; more are refused.
	checksOfWorkspace = 2
	// checksInAll is how many registries are asked at the same time; further checks wait.
	checksInAll = 64
)

// Option changes how [New] makes credentials.
type Option func(*Registries)

// FailAfter makes a failing check take d instead of [CheckTime].
func FailAfter(d time.Duration) Option { return func(s *Registries) { s.checks.failAfter = d } }

// checks ask registries whether they accept logins. Safe for concurrent use.
type checks struct {
	signIn    SignIn // nil: no registry is asked
	failAfter time.Duration
	slots     chan struct{} // has an element for each check in progress

	mu       sync.Mutex
	underWay map[sandbox.WorkspaceID]int // guarded by mu
}

func newChecks(signIn SignIn) *checks {
	return &checks{signIn: signIn, failAfter: CheckTime, slots: make(chan struct{}, checksInAll), underWay: map[sandbox.WorkspaceID]int{}}
}

// check asks the registry at a host whether it accepts the login, for a workspace. A failure
// occupies its slot until it is answered: otherwise the waiting times of other checks would reveal
// its duration.
//
// Errors: Forbidden when the registry does not accept the login, Invalid when host is not a host,
// and the same Unavailable for everything else, all after the same time; QuotaExceeded when the
// workspace has too many checks in progress; the context's.
func (c *checks) check(ctx context.Context, ws sandbox.WorkspaceID, host string, login Login) error {
	if err := c.enter(ws); err != nil {
		return err
	}
	defer c.leave(ws)
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.slots }()
	answer := time.NewTimer(c.failAfter)
	defer answer.Stop()
	asking, cancel := context.WithTimeout(ctx, CheckTime)
	defer cancel()
	err := c.signIn(asking, host, login)
	if err == nil {
		return nil
	}
	select {
	case <-answer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch sandbox.CodeOf(err) {
	case sandbox.Forbidden, sandbox.Invalid:
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be reached, is not a registry, or is at an address that this server does not connect to; "+
		"check its name and port, or ask an administrator for images.private_registries or images.insecure_registries", host)
}

func (c *checks) enter(ws sandbox.WorkspaceID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[ws] >= checksOfWorkspace {
		e := sandbox.Errorf(sandbox.QuotaExceeded, "this workspace has %d checks of registries in progress; wait until a check ends", checksOfWorkspace)
		e.RetryAfter = CheckTime
		return e
	}
	c.underWay[ws]++
	return nil
}

func (c *checks) leave(ws sandbox.WorkspaceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[ws]--; c.underWay[ws] == 0 {
		delete(c.underWay, ws)
	}
}
