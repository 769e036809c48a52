package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// workspace makes another workspace of the caller's.
func (e *env) workspace(name string) sandbox.Caller {
	e.t.Helper()
	st := e.openStore()
	ws := account.Workspace{ID: sandbox.NewWorkspaceID(), Name: name, Slug: name, CreatedBy: e.caller.User, CreatedAt: time.Now()}
	if err := errors.Join(st.Workspaces.CreateWorkspace(e.t.Context(), ws, 0), st.Close()); err != nil {
		e.t.Fatal(err)
	}
	return sandbox.Caller{User: e.caller.User, Workspace: ws.ID}
}

// TestResumesAndForksWait: they join the end of the queue. No new request passes them, and a call
// that wakes another sandbox only uses free capacity.
func TestResumesAndForksWait(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	for _, name := range []string{"asleep", "other", "parent"} {
		s.run(lifecycle.CreateRequest{Name: name})
	}
	s.pause("asleep")
	s.pause("other")
	s.run(lifecycle.CreateRequest{Name: "filler"})
	s.setQuota(quota.Limits{quota.LimitSandboxes: 2})
	_, err := s.Resume(t.Context(), s.caller, "asleep", lifecycle.ResumeRequest{})
	wantRefused(t, "a resume that does not wait", err, quota.LimitSandboxes)
	_, err = s.Resume(t.Context(), s.caller, "asleep", lifecycle.ResumeRequest{WaitForQuota: 11 * time.Minute})
	if sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a resume that waits for too long: %v, want code invalid", err)
	}
	order := make(chan string, 3)
	var g sync.WaitGroup
	g.Go(func() {
		sb, err := s.Resume(t.Context(), s.caller, "asleep", lifecycle.ResumeRequest{WaitForQuota: 10 * time.Minute})
		if err != nil || sb.State != sandbox.Running {
			t.Errorf("Resume = %s, %v", sb.State, err)
		}
		order <- "resume"
	})
	eventually(t, "the resume waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	g.Go(func() {
		children, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Names: []string{"x", "y"}, WaitForQuota: 10 * time.Minute})
		if err != nil || children[0].Err != nil || children[1].Err != nil {
			t.Errorf("Fork = %+v, %v", children, err)
		}
		order <- "fork"
	})
	eventually(t, "the fork waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 2 })
	// The parent and the paused one are as they were.
	s.reach("parent", sandbox.Running)
	s.reach("asleep", sandbox.Paused)
	_, err = s.Guest().Stat(t.Context(), s.caller, "other", "/")
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a call that wakes another: %v, want code quota_exceeded", err)
	}
	s.destroy("filler")
	if first := <-order; first != "resume" {
		t.Errorf("the %s came in first", first)
	}
	_, err = s.Guest().Stat(t.Context(), s.caller, "other", "/")
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a call that wakes another: %v, want code quota_exceeded", err)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxes: 3}) // which is too little for the fork
	if _, err = s.Guest().Stat(t.Context(), s.caller, "other", "/"); err != nil {
		t.Errorf("a call that wakes another, for which there is room: %v", err)
	}
	_, _, err = s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a create that does not wait: %v, want code quota_exceeded", err)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxes: 5})
	g.Wait()
	if used := s.used(); used.Sandboxes != 5 || s.Quotas().Waiting(s.caller.Workspace) != 0 {
		t.Errorf("used %+v, and %d wait", used, s.Quotas().Waiting(s.caller.Workspace))
	}
}

// TestWaitingResumeOfWhatEnds: the error says that the sandbox has ended.
func TestWaitingResumeOfWhatEnds(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "asleep"})
	s.pause("asleep")
	s.run(lifecycle.CreateRequest{Name: "filler"})
	s.setQuota(quota.Limits{quota.LimitSandboxes: 1})
	got := make(chan error, 1)
	go func() {
		_, err := s.Resume(t.Context(), s.caller, "asleep", lifecycle.ResumeRequest{WaitForQuota: 10 * time.Minute})
		got <- err
	}()
	eventually(t, "the resume waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	s.destroy("asleep")
	if err := <-got; sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("a resume of what ended: %v, want code ended", err)
	}
}

// TestWhatNeverFitsDoesNotWait: it would hold up those behind it for nothing.
func TestWhatNeverFitsDoesNotWait(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSandboxes = 3
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "parent"})
	_, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 4, WaitForQuota: 10 * time.Minute})
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a fork of more than the server has: %v, want code quota_exceeded", err)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxes: 2, quota.LimitCreates: 2})
	_, err = s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 3, WaitForQuota: 10 * time.Minute})
	wantRefused(t, "a fork of more than the quota", err, quota.LimitCreates)
	s.setQuota(quota.Limits{quota.LimitSandboxes: 2})
	_, err = s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 3, WaitForQuota: 10 * time.Minute})
	wantRefused(t, "a fork of more than the quota", err, quota.LimitSandboxes)
}

// TestFullServerTakesTurns: of several workspaces that wait on a full server none gets two places
// before each has got one, and no request that does not wait gets any.
func TestFullServerTakesTurns(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSandboxes = 1
	s := e.start()
	last := s.run(lifecycle.CreateRequest{Name: "filler"})
	owner := s.caller
	type let struct {
		who sandbox.Caller
		sb  sandbox.Sandbox
	}
	in := make(chan let)
	join := func(c sandbox.Caller) {
		t.Helper()
		n := s.Quotas().Waiting(c.Workspace)
		go func() {
			sb, _, err := s.Create(t.Context(), c, lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 64 << 20}, WaitForQuota: 10 * time.Minute})
			if err != nil && t.Context().Err() == nil {
				t.Errorf("who waits got %v", err)
			}
			in <- let{c, sb}
		}()
		eventually(t, "it waits for room on the server", func() bool {
			return s.Quotas().Waiting(c.Workspace) == n+1 && slices.Contains(s.Quotas().WaitingForServer(), c.Workspace)
		})
	}
	a, b, c := e.workspace("a"), e.workspace("b"), e.workspace("c")
	for range 3 {
		join(a)
	}
	join(b)
	join(b)
	join(c)
	var order []sandbox.WorkspaceID
	for len(order) < 6 {
		if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded || !errors.Is(err, quota.ErrServerFull) {
			t.Fatalf("who does not wait: %v, want the server full", err)
		}
		if _, err := s.Destroy(t.Context(), owner, string(last.ID), ""); err != nil {
			t.Fatal(err)
		}
		next := <-in
		owner, last = next.who, next.sb
		order = append(order, owner.Workspace)
		// The next request of that workspace also found the server full.
		eventually(t, "its next one waits", func() bool {
			return s.Quotas().Waiting(owner.Workspace) == 0 || slices.Contains(s.Quotas().WaitingForServer(), owner.Workspace)
		})
	}
	want := []sandbox.WorkspaceID{a.Workspace, b.Workspace, c.Workspace, a.Workspace, b.Workspace, a.Workspace}
	if !slices.Equal(order, want) {
		t.Errorf("they came in in the order %s, want %s", fmt.Sprint(order), fmt.Sprint(want))
	}
	if left := s.Quotas().WaitingForServer(); len(left) != 0 {
		t.Errorf("%v still wait", left)
	}
}
