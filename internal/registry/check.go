package registry

import (
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// CheckTime is how long a check takes that fails, and how long a registry may take to answer.
// Whatever it fails for, its time says nothing: a quick refusal of a port, a name that is
// unknown and an address that answers nothing would else tell who listens where.
const CheckTime = 10 * time.Second

const (
	// checksOfWorkspace is how many checks a workspace has under way; more are refused.
	checksOfWorkspace = 2
	// checksInAll is how many registries are asked at the same time; further checks wait.
	checksInAll = 64
)

// Option changes how [New] makes credentials.
type Option func(*Registries)

// FailAfter has a check that fails take d in place of [CheckTime].
func FailAfter(d time.Duration) Option { return func(s *Registries) { s.checks.failAfter = d } }

// checks ask registries whether they accept logins. Safe for concurrent use.
type checks struct {
	signIn    SignIn // nil: no registry is asked
	failAfter time.Duration
	slots     chan struct{} // has an element of each check under way

	mu       sync.Mutex
	underWay map[sandbox.WorkspaceID]int // guarded by mu
}

func newChecks(signIn SignIn) *checks {
	return &checks{signIn: signIn, failAfter: CheckTime, slots: make(chan struct{}, checksInAll), underWay: map[sandbox.WorkspaceID]int{}}
}

// check asks the registry at a host whether it accepts the login, for a workspace. A failure
// keeps its slot until it is answered: the wait of other checks would else tell its time.
//
// Errors: Forbidden when the registry does not accept the login, Invalid when the host is
// none, and one Unavailable for everything else, all after the same time; QuotaExceeded
// when the workspace has too many checks under way; the context's.
func (c *checks) check(ctx context.Context, ws sandbox.WorkspaceID, host string, login sandbox.RegistryLogin) error {
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
	return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be reached, is none, or is where this server reaches no registry; "+
		"check its name and port, or ask an administrator for images.private_registries or images.insecure_registries", host)
}

func (c *checks) enter(ws sandbox.WorkspaceID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[ws] >= checksOfWorkspace {
		e := sandbox.Errorf(sandbox.QuotaExceeded, "this workspace has %d checks of registries under way; wait until one ends", checksOfWorkspace)
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
