package lifecycle_test

import (
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestFilesOfQueuedExecutions: the files of commands that have not started count for
// their workspace, which cannot take what others need, and nothing stays counted.
func TestFilesOfQueuedExecutions(t *testing.T) {
	e := newEnv(t)
	e.calls = agentapi.NewMemory(8 << 20)
	s := e.start()
	other := e.workspace("other")
	begin := make(chan struct{})
	unblock := sync.OnceFunc(func() { close(begin) })
	defer unblock()
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Create" {
			<-begin
		}
		return nil
	}, nil)
	create := func(c sandbox.Caller, name string, size int) (sandbox.Sandbox, error) {
		req := shell("exit 0")
		req.Files = []execution.File{{Path: "/tmp/f", Content: make([]byte, size)}}
		sb, _, err := s.Create(t.Context(), c, lifecycle.CreateRequest{Name: name, Command: &req})
		return sb, err
	}
	if _, err := create(s.caller, "a", 6<<20); err != nil { // 2 MiB beyond its sandbox's own
		t.Fatal(err)
	}
	if _, err := create(s.caller, "b", 8<<20); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("files beyond the workspace's share: %v, want %s", err, sandbox.QuotaExceeded)
	}
	if _, err := create(other, "c", 6<<20); err != nil {
		t.Errorf("files of another workspace: %v", err)
	}
	if e.calls.ReserveFor("third", 8<<20-4<<20+1, false) {
		t.Error("the files are not counted")
	}
	unblock()
	list, err := s.Executions().List(t.Context(), s.caller, "a", "", page.Request{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("Executions = %v, %v; want one", list, err)
	}
	if got := s.ended(list.Items[0].ID); got.State != sandbox.ExecutionCompleted {
		t.Errorf("execution %s (%s), want completed", got.State, got.Error)
	}
	eventually(t, "all memory being free again", func() bool {
		free := e.calls.ReserveFor("third", 5<<20, false)
		if free {
			e.calls.ReleaseFor("third", 5<<20)
		}
		return free
	})
}
