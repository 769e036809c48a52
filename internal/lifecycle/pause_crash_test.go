package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// driverExit is how a box ends by itself.
var driverExit = driver.Exit{Cause: sandbox.CauseExited, Detail: "by itself"}

// stateful are the operations on a sandbox's state, each with a sandbox on which
// it is done and what its file may hold when the server dies in the middle.
var stateful = []struct {
	name    string
	prepare func(s *server) // of the running sandbox "s" whose file holds "old"
	do      func(s *server) error
	files   []string
}{
	{"pause", func(*server) {}, func(s *server) error {
		_, err := s.Pause(s.t.Context(), s.caller, "s")
		return err
	}, []string{"old"}},
	{"resume", func(s *server) { s.pause("s") }, func(s *server) error {
		_, err := s.Resume(s.t.Context(), s.caller, "s", lifecycle.ResumeRequest{})
		return err
	}, []string{"old"}},
	{"resume-from-files", func(s *server) { s.pause("s") }, func(s *server) error {
		_, err := s.Resume(s.t.Context(), s.caller, "s", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard})
		return err
	}, []string{"old"}},
	{"pause-without-memory", func(*server) {}, func(s *server) error {
		_, err := s.PauseFiles(s.t.Context(), s.caller, "s")
		return err
	}, []string{"old"}},
	{"resume-without-memory", func(s *server) { s.pauseFiles("s") }, func(s *server) error {
		_, err := s.Resume(s.t.Context(), s.caller, "s", lifecycle.ResumeRequest{})
		return err
	}, []string{"old"}},
	{"fork-without-memory", func(s *server) { s.pauseFiles("s") }, func(s *server) error {
		_, err := s.Fork(s.t.Context(), s.caller, "s", lifecycle.ForkRequest{Count: 2, Names: []string{"f1", "f2"}})
		return err
	}, []string{"old"}},
	{"checkpoint", func(*server) {}, func(s *server) error {
		_, err := s.Checkpoints().Create(s.t.Context(), s.caller, "s", "c")
		return err
	}, []string{"old"}},
	{"checkpoint-of-paused", func(s *server) { s.pause("s") }, func(s *server) error {
		_, err := s.Checkpoints().Create(s.t.Context(), s.caller, "s", "c")
		return err
	}, []string{"old"}},
	{"restore", checkpointed, restore, []string{"old", "new"}},
	{"restore-paused", func(s *server) {
		checkpointed(s)
		s.pause("s")
	}, restore, []string{"old", "new"}},
	{"fork", func(*server) {}, func(s *server) error {
		_, err := s.Fork(s.t.Context(), s.caller, "s", lifecycle.ForkRequest{Count: 2, Names: []string{"f1", "f2"}})
		return err
	}, []string{"old"}},
}

func checkpointed(s *server) {
	s.t.Helper()
	s.write("s", "/a", "new")
	if _, err := s.Checkpoints().Create(s.t.Context(), s.caller, "s", "c"); err != nil {
		s.t.Fatal(err)
	}
	s.write("s", "/a", "old")
}

func restore(s *server) error {
	_, err := s.Checkpoints().Restore(s.t.Context(), s.caller, "s", "c")
	return err
}

// TestCrashInTheMiddleOfEachOperation kills the server right before and right
// after each call that changes something in each operation, starts the next one,
// and finds the sandbox running or paused, with its data, and nothing left over.
func TestCrashInTheMiddleOfEachOperation(t *testing.T) {
	for _, op := range stateful {
		t.Run(op.name, func(t *testing.T) {
			s := crashSite(t, op.prepare).start()
			before := len(s.driver.faults.called())
			if err := op.do(s); err != nil {
				t.Fatal(err)
			}
			calls := len(s.driver.faults.called()) - before
			s.destroyAll()
			if calls < 1 {
				t.Fatalf("%d calls, want some", calls)
			}
			for n := range calls {
				for _, when := range []string{"Before", "After"} {
					t.Run(fmt.Sprintf("%s%d", when, n+1), func(t *testing.T) {
						crashInOperation(t, op.prepare, op.do, n+1, when == "Before", op.files)
					})
				}
			}
		})
	}
}

// crashSite is a host with the sandbox "s", prepared; its server has stopped.
func crashSite(t *testing.T, prepare func(*server)) *env {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "old")
	prepare(s)
	s.stop()
	return e
}

func crashInOperation(t *testing.T, prepare func(*server), do func(*server) error, nth int, before bool, files []string) {
	e := crashSite(t, prepare)
	s := e.start()
	first := len(s.driver.faults.called())
	var call string
	died := make(chan struct{})
	die := func(n int, c string) error {
		if n-first == nth {
			call = c
			s.driver.faults.die()
			close(died)
		}
		return nil
	}
	if before {
		s.driver.faults.on(die, nil)
	} else {
		s.driver.faults.on(nil, die)
	}
	done := make(chan error)
	go func() { done <- do(s) }()
	<-died
	s.kill()
	<-done // an error, or not: nobody heard of it
	t.Logf("died at %s", call)

	s = e.start()
	s.Sweep()
	e.wantQuarantined()
	var sb sandbox.Sandbox
	var err error
	eventually(t, "a pause that goes on in the background is over", func() bool {
		sb, err = s.Get(t.Context(), e.caller, "s")
		return err != nil || sb.State != sandbox.Pausing
	})
	if err != nil || sb.State != sandbox.Running && sb.State != sandbox.Paused {
		t.Fatalf("the sandbox is %s (%v), %v; want it running or paused", sb.State, sb.Cause, err)
	}
	if data := s.readFile("s", "/a"); !slices.Contains(files, data) {
		t.Errorf("the file holds %q, want one of %q", data, files)
	}
	usable(t, s, "s")
	s.Sweep()
	var want []string
	list, err := s.Checkpoints().List(t.Context(), e.caller, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		want = append(want, string(c.ID))
	}
	slices.Sort(want)
	if d := cmp.Diff(want, e.saved(string(sb.ID)), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("what is kept on the host differs from what is recorded (-want +got):\n%s", d)
	}
	if left := e.saved("forks"); len(left) != 0 {
		t.Errorf("left of a fork: %v", left)
	}
	for _, child := range []string{"f1", "f2"} {
		eventually(t, child+" runs, has ended or never was", func() bool {
			sb, err := s.Get(t.Context(), e.caller, child)
			return sandbox.CodeOf(err) == sandbox.NotFound || err == nil && (sb.State == sandbox.Running || sb.State.Ended())
		})
	}
	s.pause("s") // the next operations work
	s.resume("s")
	s.destroyAll()
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes left: %v", ids)
	}
}

// destroyAll ends everything that lives.
func (s *server) destroyAll() {
	s.t.Helper()
	page, err := s.List(s.t.Context(), s.caller, lifecycle.Filter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, sb := range page.Items {
		s.destroy(string(sb.ID))
	}
}

// TestResumeWhoseRecordIsLost has the store say that a record failed that succeeded.
func TestResumeWhoseRecordIsLost(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	s.write("s", "/a", "old")
	s.pause("s")
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "store.Transition running" {
			return errors.New("connection lost")
		}
		return nil
	})
	if _, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err == nil {
		t.Fatal("Resume succeeded")
	}
	s.driver.faults.on(nil, nil)
	if sb, err := s.Resume(t.Context(), s.caller, "s", lifecycle.ResumeRequest{}); err != nil || sb.State != sandbox.Running {
		t.Fatalf("Resume() again = %s, %v", sb.State, err)
	}
	if got := s.readFile("s", "/a"); got != "old" {
		t.Errorf("its file has %q", got)
	}
	usable(t, s, "s")
	s.pause("s")
}
