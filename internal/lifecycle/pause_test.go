package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/sandbox"
)

// write makes a file in a sandbox.
func (s *server) write(ref, path, content string) {
	s.t.Helper()
	if _, err := s.Guest().WriteFile(s.t.Context(), s.caller, ref, path, strings.NewReader(content), agentapi.WriteOptions{}); err != nil {
		s.t.Fatalf("write %s in %s: %v", path, ref, err)
	}
}

// get returns a sandbox.
func (s *server) get(ref string) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Get(s.t.Context(), s.caller, ref)
	if err != nil {
		s.t.Fatal(err)
	}
	return sb
}

// read returns a file of a sandbox.
func (s *server) readFile(ref, path string) string {
	s.t.Helper()
	return s.readFileIn(s.t.Context(), ref, path)
}

func (s *server) readFileIn(ctx context.Context, ref, path string) string {
	s.t.Helper()
	r, _, err := s.Guest().ReadFile(ctx, s.caller, ref, path, 0, -1)
	if err != nil {
		s.t.Fatalf("read %s in %s: %v", path, ref, err)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatalf("read %s in %s: %v", path, ref, err)
	}
	return string(data)
}

// start runs a command that goes on when nobody is attached.
func (s *server) detach(ref string, argv ...string) {
	s.t.Helper()
	stream, err := s.Guest().Exec(s.t.Context(), s.caller, ref, agentapi.Command{Argv: argv, Detach: true})
	if err != nil {
		s.t.Fatalf("Exec in %s: %v", ref, err)
	}
	if err := stream.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *server) pause(ref string) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Pause(s.t.Context(), s.caller, ref)
	if err != nil || sb.State != sandbox.Paused {
		s.t.Fatalf("Pause(%q) = %s, %v", ref, sb.State, err)
	}
	return sb
}

func (s *server) resume(ref string) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Resume(s.t.Context(), s.caller, ref, lifecycle.ResumeRequest{})
	if err != nil || sb.State != sandbox.Running {
		s.t.Fatalf("Resume(%q) = %s, %v", ref, sb.State, err)
	}
	return sb
}

func TestPauseAndResume(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	id := string(sb.ID)
	s.write("p", "/tmp/a", "before")

	got := s.pause("p")
	if got.PausedAt.IsZero() || got.Saved == "" || got.Handle != nil {
		t.Errorf("paused sandbox: %+v", got)
	}
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes of a paused sandbox: %v, want none", ids)
	}
	s.pause(id) // idempotent
	if _, err := s.Guest().Stats(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.NotRunning {
		t.Errorf("Stats of a paused sandbox: %v, want code not_running", err)
	}
	s.Sweep()
	s.stop()

	s = e.start() // pauses survive restarts
	if sb := s.reach("p", sandbox.Paused); sb.ID != got.ID {
		t.Errorf("after a restart %v", sb)
	}
	got = s.resume("p")
	if !got.PausedAt.IsZero() || got.Saved != "" || got.HostLabel != sb.HostLabel || got.Handle == nil {
		t.Errorf("resumed sandbox: %+v", got)
	}
	s.resume("p") // idempotent
	if data := s.readFile("p", "/tmp/a"); data != "before" {
		t.Errorf("file after resume: %q", data)
	}
	want := []sandbox.EventType{
		sandbox.EventCreated, sandbox.EventRunning, sandbox.EventPausing, sandbox.EventPaused, sandbox.EventResuming, sandbox.EventResumed,
	}
	if d := cmp.Diff(want, s.eventTypes("p")); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if left := e.saved(id); len(left) != 0 {
		t.Errorf("left after resume: %v", left)
	}
	s.pause("p")
	s.destroy("p") // from paused
	if left := e.saved(id); len(left) != 0 {
		t.Errorf("left after the end: %v", left)
	}
	if _, err := s.Pause(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("Pause of an ended sandbox: %v, want code ended", err)
	}
}

func TestCallsResumeOnce(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	e.host.serve(sb.ID, 8080, http.NotFoundHandler())
	s.write("p", "/tmp/a", "x")
	s.pause("p")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, wakes := guest.NoteWakes(t.Context())
			if i%2 == 0 {
				conn, err := s.Guest().Dial(ctx, sb.ID, 8080)
				if err != nil {
					t.Errorf("Dial: %v", err)
					return
				}
				_ = conn.Close()
			} else if _, err := s.Guest().Stat(ctx, e.caller, "p", "/tmp/a"); err != nil {
				t.Errorf("Stat: %v", err)
			}
			_ = wakes.Resumed() // late callers found it running
		})
	}
	wg.Wait()
	restores := 0
	for _, call := range s.driver.faults.called() {
		if call == "driver.Restore" {
			restores++
		}
	}
	if restores != 1 {
		t.Errorf("%d restores for 20 calls, want 1", restores)
	}
	s.pause("p")
	ctx, wakes := guest.NoteWakes(t.Context())
	for _, want := range []bool{true, true} { // it stays noted
		if _, err := s.Guest().Stat(ctx, e.caller, "p", "/tmp/a"); err != nil || wakes.Resumed() != want {
			t.Errorf("Stat: %v, resumed %v, want %v", err, wakes.Resumed(), want)
		}
	}
}

func TestPauseThatFailsChangesNothing(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	e.host.SetFaults(fake.Faults{Checkpoint: fake.Fail(sandbox.Errorf(sandbox.Unsupported, "it holds a device"))})
	if _, err := s.Pause(t.Context(), e.caller, "p"); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Pause = %v, want code unsupported", err)
	}
	e.host.SetFaults(fake.Faults{})
	if got := s.reach("p", sandbox.Running); got.Saved != "" || got.Handle == nil {
		t.Errorf("after a failed pause: %+v", got)
	}
	usable(t, s, "p")
	events, err := s.Events(t.Context(), e.caller, "p", sandbox.EventFilter{Limit: 1, Descending: true})
	if err != nil {
		t.Fatal(err)
	}
	for len(events.Items) > 0 && events.Items[0].Type == sandbox.EventExec { // comes when it comes
		if events, err = s.Events(t.Context(), e.caller, "p", sandbox.EventFilter{Cursor: events.Next, Limit: 1, Descending: true}); err != nil {
			t.Fatal(err)
		}
	}
	if len(events.Items) != 1 || events.Items[0].Type != sandbox.EventPauseFailed || !strings.Contains(events.Items[0].Message, "it holds a device") {
		t.Errorf("last event %+v, want why it could not be paused", events)
	}
	// It is still watched.
	e.host.End(sb.ID, driverExit)
	s.reach("p", sandbox.Failed)
}

func TestResumeThatFailsLosesNothing(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/tmp/a", "kept")
	s.pause("p")
	again := func(start time.Duration) {
		s.stop()
		e.cfg.StartTimeout = start
		s = e.start()
	}
	for name, tc := range map[string]struct {
		faults fake.Faults
		code   sandbox.Code
	}{
		"CanRestore": {fake.Faults{CanRestore: fake.Fail(sandbox.Errorf(sandbox.Unsupported, "another build"))}, sandbox.Unsupported},
		"Restore":    {fake.Faults{Restore: fake.Fail(errors.New("broken"))}, sandbox.Unavailable},
		"Agent":      {fake.Faults{Dial: fake.Fail(sandbox.Errorf(sandbox.Unavailable, "gone"))}, sandbox.Unavailable},
	} {
		if name == "Agent" {
			again(time.Second) // the longest wait for an agent that never answers
		}
		e.host.SetFaults(tc.faults)
		if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryRequire}); sandbox.CodeOf(err) != tc.code {
			t.Errorf("%s: Resume = %v, want code %s", name, err, tc.code)
		}
		e.host.SetFaults(fake.Faults{})
		s.reach("p", sandbox.Paused)
		if name == "Agent" {
			again(0)
		}
	}
	s.resume("p")
	if data := s.readFile("p", "/tmp/a"); data != "kept" {
		t.Errorf("file after the failures: %q", data)
	}
}

func TestReadersDoNotResumeASandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/tmp/a", "text")
	reader := s.caller
	reader.ReadOnly = true
	if info, err := s.Guest().Stat(t.Context(), reader, "p", "/tmp/a"); err != nil || info.Size != 4 {
		t.Errorf("Stat in the running sandbox = %+v, %v", info, err)
	}
	s.pause("p")
	if _, err := s.Guest().Stat(t.Context(), reader, "p", "/tmp/a"); sandbox.CodeOf(err) != sandbox.NotRunning {
		t.Errorf("Stat in the paused sandbox by a reader: %v, want code not_running", err)
	}
	if sb := s.get("p"); sb.State != sandbox.Paused {
		t.Errorf("after the reader's call the sandbox is %s, want paused", sb.State)
	}
	if _, err := s.Guest().Stat(t.Context(), s.caller, "p", "/tmp/a"); err != nil {
		t.Errorf("Stat in the paused sandbox by a writer: %v", err)
	}
}

func TestIdle(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const idle = 50 * time.Millisecond
	s.create(lifecycle.CreateRequest{Name: "ends", Timeouts: sandbox.Timeouts{Idle: idle}})
	if sb := s.reach("ends", sandbox.Destroyed); sb.Cause.Code != sandbox.CauseIdle {
		t.Errorf("cause %v, want idle", sb.Cause)
	}
	s.create(lifecycle.CreateRequest{Name: "naps", Timeouts: sandbox.Timeouts{Idle: idle, OnIdle: sandbox.OnIdlePause}})
	s.reach("naps", sandbox.Paused)
	if _, err := s.Resume(t.Context(), e.caller, "naps", lifecycle.ResumeRequest{}); err != nil { // it may sleep again by now
		t.Error(err)
	}
	s.reach("naps", sandbox.Paused) // again and again

	s.run(lifecycle.CreateRequest{Name: "forgotten", Timeouts: sandbox.Timeouts{Paused: idle}})
	if _, err := s.Pause(t.Context(), e.caller, "forgotten"); err != nil {
		t.Error(err)
	}
	if sb := s.reach("forgotten", sandbox.Destroyed); sb.Cause.Code != sandbox.CausePausedTTL {
		t.Errorf("cause %v, want paused_ttl", sb.Cause)
	}
	late := s.run(lifecycle.CreateRequest{Name: "late", TTL: time.Hour})
	s.pause("late")
	s.stop()
	e.backdate(late.ID, time.Now().Add(500*time.Millisecond-time.Hour))
	s = e.start()
	if sb := s.reach("late", sandbox.Destroyed); sb.Cause.Code != sandbox.CauseTTL {
		t.Errorf("cause %v, want ttl: it counts while paused, too", sb.Cause)
	}
}

func TestIdleSandboxesArePausedUnderPressure(t *testing.T) {
	e := newEnv(t)
	var available atomic.Int64
	available.Store(1000)
	e.cfg.Pressure = pressure.Options{
		Below: 400, Idle: 200 * time.Millisecond, Interval: 10 * time.Millisecond,
		Available: func() (int64, error) { return available.Load(), nil },
	}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "idle"})
	s.run(lifecycle.CreateRequest{Name: "busy"})
	e.host.serve(s.get("busy").ID, 8080, http.NotFoundHandler())
	conn, err := s.Guest().Dial(t.Context(), s.get("busy").ID, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	available.Store(300)
	s.reach("idle", sandbox.Paused)
	available.Store(1000)
	if sb := s.get("busy"); sb.State != sandbox.Running {
		t.Errorf("a sandbox with a connection is %s, want running", sb.State)
	}
	if _, err := s.Guest().Stat(t.Context(), e.caller, "idle", "/tmp"); err != nil {
		t.Errorf("a call into the paused sandbox: %v", err)
	}
	if sb := s.get("idle"); sb.State != sandbox.Running {
		t.Errorf("after a call it is %s, want running", sb.State)
	}
}

// TestUseKeepsASandboxFromIdling asserts that each kind of use moves the idle
// deadline: what holds it must show as activity now, however late it is looked at.
func TestUseKeepsASandboxFromIdling(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	var ref string
	var conn net.Conn
	eventually(t, "one is reached before it ends, idle", func() bool {
		sb := s.create(lifecycle.CreateRequest{Timeouts: sandbox.Timeouts{Idle: 300 * time.Millisecond}})
		ref = string(sb.ID)
		e.host.serve(sb.ID, 8080, http.NotFoundHandler())
		got, err := s.Wait(t.Context(), e.caller, ref, sandbox.Running, testTimeout)
		if err == nil && got.State == sandbox.Running {
			conn, err = s.Guest().Dial(t.Context(), sb.ID, 8080)
		}
		return err == nil && conn != nil
	})
	for begin := time.Now(); time.Since(begin) < 900*time.Millisecond; {
		now := time.Now()
		got, err := s.Get(t.Context(), e.caller, ref)
		if err != nil || got.State != sandbox.Running || got.LastActivityAt.Before(now) {
			t.Fatalf("with an open connection: %s, last activity %s, now %s, %v", got.State, got.LastActivityAt, now, err)
		}
	}
	s.detach(ref, "sleep", "1000")
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	// A running command also counts: the clock starts again whenever a sweep finds it.
	before, err := s.Get(t.Context(), e.caller, ref)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the running command counts", func() bool {
		got, err := s.Get(t.Context(), e.caller, ref)
		if err != nil || got.State != sandbox.Running {
			t.Fatalf("with a running command: %s, %v", got.State, err)
		}
		return got.LastActivityAt.After(before.LastActivityAt.Add(300 * time.Millisecond))
	})
}

func TestCheckpoints(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "c"})
	s.write("c", "/tmp/a", "one")
	one, err := s.Checkpoints().Create(t.Context(), e.caller, "c", "one")
	if err != nil || one.Name != "one" || one.SizeBytes == 0 || one.Sandbox != sb.ID {
		t.Fatalf("CreateCheckpoint = %+v, %v", one, err)
	}
	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "c", "one"); sandbox.CodeOf(err) != sandbox.Exists {
		t.Errorf("the same name again: %v, want code exists", err)
	}
	s.write("c", "/tmp/a", "two")
	s.pause("c")
	two, err := s.Checkpoints().Create(t.Context(), e.caller, "c", "")
	if err != nil || two.Name == "" {
		t.Fatalf("CreateCheckpoint of a paused sandbox = %+v, %v", two, err)
	}
	s.reach("c", sandbox.Paused)
	for _, step := range []struct{ ref, want string }{{"one", "one"}, {string(two.ID), "two"}, {string(one.ID), "one"}} {
		got, err := s.Checkpoints().Restore(t.Context(), e.caller, "c", step.ref)
		if err != nil || got.State != sandbox.Running || got.ID != sb.ID || got.HostLabel != sb.HostLabel {
			t.Fatalf("RestoreCheckpoint(%s) = %+v, %v", step.ref, got, err)
		}
		if data := s.readFile("c", "/tmp/a"); data != step.want {
			t.Errorf("file after going back to %s: %q, want %q", step.ref, data, step.want)
		}
		s.write("c", "/tmp/a", "three")
	}
	if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "c", "none"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("RestoreCheckpoint of none: %v, want code not_found", err)
	}
	list, err := s.Checkpoints().List(t.Context(), e.caller, "c")
	if d := cmp.Diff([]sandbox.Checkpoint{one, two}, list); err != nil || d != "" {
		t.Errorf("Checkpoints: %v (-want +got):\n%s", err, d)
	}
	s.Sweep()
	if d := cmp.Diff(sorted(string(one.ID), string(two.ID)), e.saved(string(sb.ID))); d != "" {
		t.Errorf("kept on the host (-want +got):\n%s", d)
	}
	if err := s.Checkpoints().Delete(t.Context(), e.caller, "c", "one"); err != nil {
		t.Error(err)
	}
	if err := s.Checkpoints().Delete(t.Context(), e.caller, "c", "one"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("DeleteCheckpoint again: %v, want code not_found", err)
	}
	if d := cmp.Diff([]string{string(two.ID)}, e.saved(string(sb.ID))); d != "" {
		t.Errorf("kept on the host (-want +got):\n%s", d)
	}
	s.destroy("c")
	if list, err := s.Checkpoints().List(t.Context(), e.caller, "c"); err != nil || len(list) != 0 || len(e.saved(string(sb.ID))) != 0 {
		t.Errorf("after the end: %v, %v, files %v", list, err, e.saved(string(sb.ID)))
	}
}

// The files of a driver for checkpoints are removed when no checkpoint needs them.
func TestStartTidiesForTheCheckpointsThereAre(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "p", "c"); err != nil {
		t.Fatal(err)
	}
	s.pause("p")
	s.stop()
	s = e.start()
	var got []string
	for _, path := range s.driver.tidied {
		if id := filepath.Base(filepath.Dir(path)); id != string(sb.ID) {
			t.Errorf("%s is of sandbox %s, want %s", path, id, sb.ID)
		}
		got = append(got, filepath.Base(path))
	}
	slices.Sort(got)
	if want := e.saved(string(sb.ID)); len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("tidied for %q, want the two there are, %q", got, want)
	}
}

// A box that becomes a saved state between the look at the saved states and the look at the boxes would lose its files, so the driver tidies
// before anything is done with the sandboxes of the server before.
func TestStartTidiesFirst(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.store.faults.on(func(_ int, call string) error {
		if call == "driver.Create" {
			s.store.faults.die()
		}
		return nil
	}, nil)
	s.create(lifecycle.CreateRequest{Name: "p"})
	eventually(t, "the server is killed", s.store.faults.isDead)
	s.kill()
	s = e.start()
	s.reach("p", sandbox.Running)
	if before := s.driver.beforeTidy; before == nil || len(before) > 0 {
		t.Errorf("before the driver tidies the server calls %q", before)
	}
}

func (d *faultyDriver) Tidy(checkpoints []string) error {
	d.tidied = checkpoints
	d.beforeTidy = append([]string{}, d.faults.called()...)
	return nil
}

func sorted(s ...string) []string {
	slices.Sort(s)
	return s
}

func TestFork(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	parent := s.run(lifecycle.CreateRequest{Name: "f", Env: map[string]string{"A": "1", "B": "1"}, Labels: map[string]string{"l": "1"}, TTL: time.Hour})
	s.write("f", "/tmp/a", "parent")
	s.run(lifecycle.CreateRequest{Name: "taken"})
	for _, paused := range []bool{false, true} {
		if paused {
			s.pause("f")
		}
		results, err := s.Fork(t.Context(), e.caller, "f", lifecycle.ForkRequest{
			Count: 3, Names: []string{"child", "taken"}, Env: map[string]string{"B": "2"}, TTL: 2 * time.Hour,
		})
		if err != nil || len(results) != 3 {
			t.Fatalf("Fork = %v, %v", results, err)
		}
		if sandbox.CodeOf(results[1].Err) != sandbox.Exists {
			t.Errorf("child with a taken name: %v, want code exists", results[1].Err)
		}
		for _, i := range []int{0, 2} {
			child := results[i].Sandbox
			if results[i].Err != nil || child.State != sandbox.Running || child.Parent != parent.ID || child.HostLabel == parent.HostLabel || child.TTL != 2*time.Hour {
				t.Fatalf("child %d: %+v, %v", i, child, results[i].Err)
			}
			if d := cmp.Diff(map[string]string{"A": "1", "B": "2"}, child.Env); d != "" {
				t.Errorf("environment of a child (-want +got):\n%s", d)
			}
			if data := s.readFile(string(child.ID), "/tmp/a"); data != "parent" {
				t.Errorf("file of a child: %q", data)
			}
			s.write(string(child.ID), "/tmp/a", "child")
			s.destroy(string(child.ID))
		}
		want := sandbox.Running
		if paused {
			want = sandbox.Paused
		}
		s.reach("f", want)
		if data := s.readFile("f", "/tmp/a"); data != "parent" {
			t.Errorf("file of the parent: %q", data)
		}
		if left := e.saved("forks"); len(left) != 0 {
			t.Errorf("left of the fork: %v", left)
		}
	}
	if _, err := s.Fork(t.Context(), e.caller, "f", lifecycle.ForkRequest{Count: 101}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Fork of too many: %v, want code invalid", err)
	}
}
