package lifecycle_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestTTLBeginsWhenOneIsLetIn: no time is lost by waiting.
func TestTTLBeginsWhenOneIsLetIn(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "first"})
	got := make(chan sandbox.Sandbox, 1)
	go func() {
		sb, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{TTL: time.Minute, WaitForQuota: time.Minute})
		if err != nil {
			t.Error(err)
		}
		got <- sb
	}()
	eventually(t, "it waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	before := time.Now()
	s.destroy("first")
	if sb := <-got; sb.CreatedAt.Before(before) {
		t.Errorf("created at %s, let in after %s", sb.CreatedAt, before)
	}
}
