package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestGoingBackKeepsThePlace: nobody who waits gets the place of a sandbox that goes
// back to a checkpoint, also when the quota has become smaller.
func TestGoingBackKeepsThePlace(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 2}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.run(lifecycle.CreateRequest{Name: "b"})
	if _, err := s.Checkpoints().Create(t.Context(), s.caller, "a", "c"); err != nil {
		t.Fatal(err)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxes: 1})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := s.Create(ctx, s.caller, lifecycle.CreateRequest{WaitForQuota: time.Minute})
		left <- err
	}()
	eventually(t, "it waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	if sb, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "c"); err != nil || sb.State != sandbox.Running || !sb.PausedAt.IsZero() {
		t.Errorf("RestoreCheckpoint = %s since %s, %v", sb.State, sb.PausedAt, err)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who waited got %v", err)
	}
}
