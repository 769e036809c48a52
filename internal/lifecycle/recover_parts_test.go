package lifecycle_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// other returns the site of the server that owns the other half of the sandboxes, with workers of its own, and makes e the site of the server
// of the first half.
func (e *env) other(t *testing.T) *env {
	o := *e
	e.owner, o.owner = sandbox.Own(sandbox.Parts(2)[0]), sandbox.Own(sandbox.Parts(2)[1])
	o.host, o.calls = newHost(t), agentapi.NewMemory(256<<20)
	o.onLog = func(message string) {
		if strings.HasPrefix(message, "sweep") || strings.Contains(message, "trying again") {
			t.Errorf("the other server logs %q", message)
		}
	}
	return &o
}

// visit starts the other server, has it look for what is stuck or orphaned, and stops it.
func (e *env) visit() {
	s := e.start()
	s.Sweep()
	s.Purge()
	s.stop()
}

// TestOtherServerComesInTheMiddleOfEachOperation starts a server of other sandboxes with the same database and directory right before and
// right after each call that changes something in each operation. It leaves everything alone.
func TestOtherServerComesInTheMiddleOfEachOperation(t *testing.T) {
	ops := append(slices.Clone(stateful), stateful[0])
	ops[len(ops)-1].name = "snapshot"
	ops[len(ops)-1].do = func(s *server) error {
		_, err := s.Snapshots().Create(s.t.Context(), s.caller, "s", snapshot.Request{Name: "n"})
		return err
	}
	for _, op := range ops {
		// A checkpoint that is begun and has no files yet is the only thing that a server may forget without a trace.
		for name, comes := range map[string]func(call string) bool{
			"": func(string) bool { return true }, "/with files": func(call string) bool { return call != "checkpoints.Begin" },
		} {
			t.Run(op.name+name, func(t *testing.T) { visitDuring(t, op.prepare, op.do, comes, op.files) })
		}
	}
}

// visitDuring has another server come at calls of an operation on the sandbox "s".
func visitDuring(t *testing.T, prepare func(*server), do func(*server) error, comes func(call string) bool, files []string) {
	e := newEnv(t)
	o := e.other(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "old")
	prepare(s)
	visit := func(_ int, call string) error {
		if comes(call) {
			o.visit()
		}
		return nil
	}
	s.driver.faults.on(visit, visit)
	err := do(s)
	s.driver.faults.on(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.visit()
	e.wantQuarantined()
	if data := s.readFile("s", "/a"); !slices.Contains(files, data) {
		t.Errorf("the file holds %q, want one of %q", data, files)
	}
	usable(t, s, "s")
	list, err := s.Checkpoints().List(t.Context(), e.caller, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "s", string(c.ID)); err != nil {
			t.Errorf("restore %s: %v", c.Name, err)
		}
	}
	for _, child := range []string{"f1", "f2"} {
		if sb, err := s.Get(t.Context(), e.caller, child); err == nil && sb.State != sandbox.Running {
			t.Errorf("the child %s is %s (%v)", child, sb.State, sb.Cause)
		}
	}
	s.destroyAll()
}

// TestOtherServerAndBuilds: the quota counts what builds of another server have reserved, and nothing that a server that is gone has reserved.
func TestOtherServerAndBuilds(t *testing.T) {
	e := newEnv(t)
	o := e.other(t)
	for _, site := range []*env{e, o} {
		s := site.start()
		if _, err := s.Quotas().Reserve(t.Context(), e.caller.Workspace, sandbox.Resources{MemoryBytes: 1 << 28}); err != nil {
			t.Fatal(err)
		}
		reserved := s.used().MemoryBytes
		if reserved == 0 {
			t.Fatal("nothing is reserved")
		}
		for _, other := range []*env{e, o} {
			if other != site {
				other.visit()
			}
		}
		if got := s.used().MemoryBytes; got != reserved {
			t.Errorf("%d bytes of memory are reserved after another server came, want %d", got, reserved)
		}
		s.stop()
		site.visit()
		s = site.start()
		if got := s.used().MemoryBytes; got != 0 {
			t.Errorf("%d bytes of memory are reserved after the server that had reserved them", got)
		}
		s.stop()
	}
}

// TestOtherServerAndExecutions: executions go on, and are recorded, while another server comes.
func TestOtherServerAndExecutions(t *testing.T) {
	e := newEnv(t)
	o := e.other(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	req := shell("read line; echo $line")
	req.Stdin = true
	x := s.startExecution("a", req)
	gone := s.run(lifecycle.CreateRequest{Name: "gone"})
	y := s.startExecution("gone", shell("sleep 60"))
	o.visit()
	if got, err := s.Executions().Get(t.Context(), e.caller, y.ID); err != nil || got.State != sandbox.ExecutionRunning {
		t.Errorf("an execution is %s, %v; want it running", got.State, err)
	}
	s.destroy(string(gone.ID))
	o.visit()
	if err := s.Executions().WriteStdin(t.Context(), string(x.Stdin), strings.NewReader("here\n")); err != nil {
		t.Fatal(err)
	}
	if got := s.ended(x.ID); got.State != sandbox.ExecutionCompleted {
		t.Errorf("the execution is %s (%s), want completed", got.State, got.Error)
	}
	if got := s.read(x.Stdout.ID, 0); got != "here\n" {
		t.Errorf("its output is %q", got)
	}
}

// TestOtherServersBoxes: a server destroys boxes of other servers that are on its host only if their sandboxes have ended.
func TestOtherServersBoxes(t *testing.T) {
	e := newEnv(t)
	o := e.other(t)
	o.host, o.onLog = e.host, nil
	s := e.start()
	live := s.run(lifecycle.CreateRequest{Name: "live"})
	gone := e.owner.NewID() // of a box without a row, as a killed server leaves
	if _, err := s.driver.Driver.Create(t.Context(), driver.Spec{ID: gone, Hostname: "x", RootFS: "/x", Resources: live.Resources}); err != nil {
		t.Fatal(err)
	}
	o.visit()
	if got := e.host.ids(); !slices.Equal(got, []sandbox.ID{live.ID}) {
		t.Errorf("boxes %v, want the box of %s alone", got, live.ID)
	}
	usable(t, s, "live")
}

// TestThePrimaryForgetsExecutions: of several servers the primary alone forgets old executions, of all sandboxes.
func TestThePrimaryForgetsExecutions(t *testing.T) {
	e := newEnv(t)
	e.cfg.StreamRetention = time.Nanosecond
	o := e.other(t)
	s := o.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	x := s.ended(s.startExecution("a", shell("echo here")).ID)
	s.Purge()
	if _, err := s.Executions().Get(t.Context(), e.caller, x.ID); err != nil {
		t.Errorf("after the purge of the other server: %v", err)
	}
	p := e.start()
	p.Purge()
	if _, err := s.Executions().Get(t.Context(), e.caller, x.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("after the purge of the primary: %v, want not_found", err)
	}
}

// TestInputOfAnotherServer: a command reads input that is written at another server, which counts it no more.
func TestInputOfAnotherServer(t *testing.T) {
	e := newEnv(t)
	o := e.other(t)
	s, other := e.start(), o.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	for i := range sandbox.InputStreamsMax {
		id, err := other.Executions().CreateStream(t.Context(), e.caller)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		x := s.startExecution("a", execution.Request{Argv: []string{"cat"}, StdinStream: id})
		if err := other.Executions().WriteStdin(t.Context(), string(id), strings.NewReader("here")); err != nil {
			t.Fatal(err)
		}
		if err := other.Executions().CloseStdin(t.Context(), string(id)); err != nil {
			t.Fatal(err)
		}
		if got := s.read(x.Stdout.ID, 0); got != "here" {
			t.Errorf("the output is %q", got)
		}
	}
	if _, err := other.Executions().CreateStream(t.Context(), e.caller); err != nil {
		t.Errorf("a stream in place of the used stream: %v", err)
	}
	if _, err := other.Executions().CreateStream(t.Context(), e.caller); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one stream too many: %v, want quota_exceeded", err)
	}
}

// TestTwoServersInAStorm has two servers work, sweep all the time, and end and start again, with one directory.
func TestTwoServersInAStorm(t *testing.T) {
	e := newEnv(t)
	e.cfg.SweepInterval = 2 * time.Millisecond
	o := e.other(t)
	var both sync.WaitGroup
	for site, name := range map[*env]string{e: "e", o: "o"} {
		both.Go(func() {
			s := site.start()
			s.run(lifecycle.CreateRequest{Name: name})
			for round := range 12 {
				if err := s.round(name, fmt.Sprint(name, round)); err != nil {
					t.Errorf("round %d of %s: %v", round, name, err)
					return
				}
				if round%3 == 2 {
					s.stop()
					s = site.start()
				}
			}
			s.destroy(name)
		})
	}
	both.Wait()
	e.wantQuarantined()
	if left := e.saved("forks/0"); len(left) > 0 {
		t.Errorf("left of forks: %v", left)
	}
}

// round changes the state of a sandbox in each way; tag is of this round alone.
func (s *server) round(ref, tag string) error {
	ctx, c := s.t.Context(), s.caller
	if _, err := s.Guest().WriteFile(ctx, c, ref, "/a", strings.NewReader(tag), agentapi.WriteOptions{}); err != nil {
		return err
	}
	if _, err := s.Checkpoints().Create(ctx, c, ref, tag); err != nil {
		return err
	}
	if _, err := s.Pause(ctx, c, ref); err != nil {
		return err
	}
	children, err := s.Fork(ctx, c, ref, lifecycle.ForkRequest{Count: 2})
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.Err != nil {
			return child.Err
		}
		r, _, err := s.Guest().ReadFile(ctx, c, string(child.Sandbox.ID), "/a", 0, -1)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(data) != tag {
			return fmt.Errorf("the child has %q, %w", data, err)
		}
		if _, err := s.Destroy(ctx, c, string(child.Sandbox.ID), ""); err != nil {
			return err
		}
	}
	if _, err := s.Resume(ctx, c, ref, lifecycle.ResumeRequest{}); err != nil {
		return err
	}
	if _, err := s.Checkpoints().Restore(ctx, c, ref, tag); err != nil {
		return err
	}
	if err := s.Checkpoints().Delete(ctx, c, ref, tag); err != nil {
		return err
	}
	if _, err := s.Snapshots().Create(ctx, c, ref, snapshot.Request{Name: tag}); err != nil {
		return err
	}
	x, err := s.Executions().Start(ctx, c, ref, shell("cat /a"))
	if err != nil {
		return err
	}
	if x, err = s.Executions().Wait(ctx, c, x.ID, testTimeout); err != nil || x.State != sandbox.ExecutionCompleted {
		return fmt.Errorf("the execution is %s (%s), %w", x.State, x.Error, err)
	}
	return nil
}
