package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// hindered is a store whose methods call hooks before they work.
type hindered struct {
	audit.Store
	change func(*audit.Change) error
	rows   func(context.Context, audit.Filter) error
	synced atomic.Int64
}

func (s *hindered) ChangeAudit(ctx context.Context, change *audit.Change) (audit.Chain, error) {
	if s.change != nil {
		if err := s.change(change); err != nil {
			return audit.Chain{}, err
		}
	}
	if change.Durable {
		s.synced.Add(1)
	}
	return s.Store.ChangeAudit(ctx, change)
}

func (s *hindered) AuditRows(ctx context.Context, f audit.Filter) (page.Page[audit.Row], error) {
	if s.rows != nil {
		if err := s.rows(ctx, f); err != nil {
			return page.Page[audit.Row]{}, err
		}
	}
	return s.Store.AuditRows(ctx, f)
}

// hinder replaces the fixture's log by a log over a hindered store.
func (f *fixture) hinder(st *hindered, cfg audit.Config) {
	f.Helper()
	f.log.Close()
	st.Store = f.store.Audit
	f.log = audit.Open(st, cfg, slog.New(slog.DiscardHandler))
	f.Cleanup(f.log.Close)
}

// run is the handler of a command.
func run(t *testing.T, done *atomic.Int64) func(e *audit.Entry) {
	return func(e *audit.Entry) {
		e.By(audit.Actor{User: "ada"})
		if e.Command(t.Context(), []string{"true"}) == nil {
			done.Add(1)
		}
	}
}

func TestNothingIsDoneBeforeItIsPutDown(t *testing.T) {
	for action, command := range map[string]bool{"exec": true, "delete-file": false} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { nothingIsDoneBefore(t, action, command) }) // slow commands have more records
		})
	}
}

func nothingIsDoneBefore(t *testing.T, action string, command bool) {
	f := newFixture(t, audit.Config{})
	var done, answered atomic.Int64
	changes := make(chan *audit.Change)
	st := &hindered{change: func(c *audit.Change) error {
		changes <- c // hangs until the test receives
		changes <- c // and until the test has checked
		return nil
	}}
	f.hinder(st, audit.Config{WriteTimeout: time.Hour})
	go func() {
		f.handle(action, func(e *audit.Entry) {
			if command {
				run(t, &done)(e)
			} else {
				done.Add(1)
			}
		})
		answered.Add(1)
	}()
	if c := <-changes; len(c.Begun) != 1 || !strings.Contains(string(c.Begun[0].Record), `"outcome":"started"`) || done.Load() != 0 {
		t.Errorf("before %d were done is put down: %+v", done.Load(), c)
	}
	<-changes
	c := <-changes
	synced := int64(1)
	if command {
		synced = 0
	}
	if len(c.Begun) != 0 || len(c.Ended) != 1 || done.Load() != 1 || st.synced.Load() != synced {
		t.Errorf("then %+v, %d done, %d times brought to the disk", c, done.Load(), st.synced.Load())
	}
	if !command && answered.Load() != 0 {
		t.Error("it was answered before its end was recorded")
	}
	<-changes
	for deadline := time.Now().Add(time.Minute); answered.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not answered")
		}
	}
	if r := f.verify(); r.Problem != "" || r.Records != 1 {
		t.Errorf("%+v, want one record", r)
	}
}

func TestNothingIsDoneWithoutARecord(t *testing.T) {
	f := newFixture(t, audit.Config{})
	var broken atomic.Bool
	var done atomic.Int64
	f.hinder(&hindered{change: func(*audit.Change) error {
		if broken.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}}, audit.Config{WriteTimeout: 500 * time.Millisecond})
	broken.Store(true)
	for _, action := range []string{"exec", "delete-file", "exec"} {
		w := f.handle(action, run(t, &done))
		if action != "exec" && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: answered with %d", action, w.Code)
		}
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d requests without a record were done", n)
	}
	broken.Store(false)
	for deadline := time.Now().Add(time.Minute); done.Load() == 0; f.handle("exec", run(t, &done)) {
		if time.Now().After(deadline) {
			t.Fatal("requests are still refused")
		}
	}
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	ok := len(f.records(audit.Filter{Action: "exec", Outcome: audit.OK}))
	if r := f.verify(); r.Problem != "" || ok != int(done.Load()) {
		t.Errorf("%+v, %d records of what was done, want %d", r, ok, done.Load())
	}
}

// TestDestroyOnAFullDisk destroys a sandbox on a full disk, which frees the space that the record
// needs.
func TestDestroyOnAFullDisk(t *testing.T) {
	f := newFixture(t, audit.Config{})
	var full atomic.Bool
	f.hinder(&hindered{change: func(*audit.Change) error {
		if full.Load() {
			return sandbox.NoSpace(errors.New("database or disk is full"))
		}
		return nil
	}}, audit.Config{WriteTimeout: 500 * time.Millisecond})
	full.Store(true)
	if w := f.handle("delete-file", func(*audit.Entry) { t.Error("a file was removed without a record") }); w.Code != http.StatusServiceUnavailable {
		t.Errorf("delete-file: answered with %d", w.Code)
	}
	destroyed := false
	if w := f.handle("delete-sandbox", func(*audit.Entry) { destroyed = true; full.Store(false) }); w.Code != http.StatusOK || !destroyed {
		t.Errorf("delete-sandbox: answered with %d, destroyed: %t", w.Code, destroyed)
	}
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	if n := len(f.records(audit.Filter{Action: "delete-sandbox", Outcome: audit.OK})); n != 1 {
		t.Errorf("%d records of the destroy, want 1", n)
	}
	if r := f.verify(); r.Problem != "" {
		t.Errorf("%+v", r)
	}
}

// hang replaces the fixture's log by a log that writes nothing until release is called.
func (f *fixture) hang() (release func()) {
	f.Helper()
	released := make(chan struct{})
	f.hinder(&hindered{change: func(*audit.Change) error {
		<-released
		return nil
	}}, audit.Config{WriteTimeout: time.Hour})
	return func() { close(released) }
}

// However many requests arrive while nothing can be written, none loses its record.
func TestManyWhileTheStoreHangs(t *testing.T) {
	f := newFixture(t, audit.Config{})
	release := f.hang()
	const many = 900
	var done, begun atomic.Int64
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			begun.Add(1)
			f.handle("exec", run(t, &done))
		})
	}
	for deadline := time.Now().Add(time.Minute); begun.Load() < many; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all have begun")
		}
	}
	if done.Load() != 0 {
		t.Error("some are done already")
	}
	release()
	wg.Wait()
	ok := len(f.records(audit.Filter{Outcome: audit.OK}))
	if r := f.verify(); r.Problem != "" || ok != many || done.Load() != many {
		t.Errorf("%+v, %d records of %d that were done, want %d", r, ok, done.Load(), many)
	}
}

// However many anonymous requests wait, signed-in users are admitted beside them.
func TestStrangersKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, audit.Config{})
		release := f.hang()
		var refused, done, signedIn atomic.Int64
		const strangers = 2000
		var wg sync.WaitGroup
		for range strangers {
			wg.Go(func() {
				f.handle("exec", func(e *audit.Entry) {
					if e.Command(t.Context(), []string{"true"}) != nil {
						refused.Add(1)
					} else {
						done.Add(1)
					}
				})
			})
		}
		synctest.Wait()
		if refused.Load() == 0 || done.Load() != 0 {
			t.Errorf("of %d strangers %d were refused while nothing was written, and %d let in", strangers, refused.Load(), done.Load())
		}
		wg.Go(func() {
			f.handle("exec", func(e *audit.Entry) {
				e.By(audit.Actor{User: "ada"})
				if err := e.Command(t.Context(), []string{"true"}); err != nil {
					t.Errorf("somebody who is signed in, when there is no place for strangers: %v", err)
				}
				signedIn.Add(1)
			})
		})
		synctest.Wait()
		if signedIn.Load() != 0 {
			t.Error("it did not wait for its record")
		}
		release()
		wg.Wait()
		if refused.Load()+done.Load() != strangers || done.Load() == 0 || signedIn.Load() != 1 {
			t.Errorf("in the end %d were refused and %d let in, and %d of one that is signed in", refused.Load(), done.Load(), signedIn.Load())
		}
	})
}

// Operations of a killed server are recorded by the next server, with what was known.
func TestRecover(t *testing.T) {
	f := newFixture(t, audit.Config{})
	begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.handle("exec", func(e *audit.Entry) {
			e.By(audit.Actor{User: "ada", Workspace: "w"})
			if err := e.Command(t.Context(), []string{"rm", "-r", "/data"}); err != nil {
				t.Error(err)
			}
			close(begun)
			<-release
		})
	}()
	<-begun
	next := audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer next.Close()
	for range 2 { // the second time there is nothing to recover
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.log = next
	list := f.records(audit.Filter{Outcome: audit.Interrupted})
	if len(list) != 1 || list[0].User != "ada" || strings.Join(list[0].Command, " ") != "rm -r /data" || list[0].Details["begun"] == "" || list[0].ObjectID != "one" {
		t.Errorf("records of what was interrupted: %+v", list)
	}
	if r := f.verify(); r.Problem != "" {
		t.Error(r.Problem)
	}
	close(release)
	<-ended
}

// A NUL that a caller sent does not stop the log, also where an older server recorded it.
func TestNULInRecords(t *testing.T) {
	f := newFixture(t, audit.Config{})
	f.handle("exec", func(e *audit.Entry) {
		e.Object("sandbox", "a\x00b", "c\x00d")
		e.Detail("reason", "e\x00f")
		if err := e.Command(t.Context(), []string{"g\x00h"}); err != nil {
			t.Error(err)
		}
	})
	f.add("other", 1)
	for _, r := range f.records(audit.Filter{}) {
		if text := fmt.Sprint(r); strings.Contains(text, "\x00") {
			t.Errorf("a record has NUL: %q", text)
		}
	}
	f.log.Close()
	old := []byte(`{"action":"old","object_id":"a\u0000b","details":{"x":"\u0000"},"command":["\\u0000"]}`)
	if _, err := f.store.Audit.ChangeAudit(t.Context(), &audit.Change{Begun: []audit.Intent{{ID: "old", Record: old}}}); err != nil {
		t.Fatal(err)
	}
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	if err := f.log.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := f.records(audit.Filter{Action: "old"})
	if len(list) != 1 || list[0].ObjectID != "a\x00b" || list[0].Details["x"] != "\x00" || list[0].Command[0] != `\u0000` {
		t.Errorf("the recovered record is %+v, want its text unchanged", list)
	}
	if r := f.verify(); r.Problem != "" {
		t.Error(r.Problem)
	}
}

// Hijacked connections may end after the HTTP server.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	for name, ends := range map[string]bool{audit.OK: true, audit.Interrupted: false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, audit.Config{})
			cfg := audit.Config{WriteTimeout: time.Hour, CloseTimeout: time.Hour}
			if !ends {
				cfg.CloseTimeout = time.Millisecond
			}
			f.hinder(&hindered{}, cfg)
			begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				f.handle("exec-attach", func(e *audit.Entry) {
					if err := e.Command(t.Context(), []string{"sh"}); err != nil {
						t.Error(err)
					}
					close(begun)
					<-release
					e.Detail("exit_code", "7")
				})
			}()
			<-begun
			closed := make(chan struct{})
			go func() {
				f.log.Close()
				close(closed)
			}()
			for deadline := time.Now().Add(time.Minute); f.handle("late", func(*audit.Entry) {}).Code != http.StatusServiceUnavailable; {
				if time.Now().After(deadline) {
					t.Fatal("something is let in by a log that closes")
				}
			}
			if ends {
				close(release)
			}
			<-closed
			if !ends {
				close(release)
			}
			<-ended
			f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
			defer f.log.Close()
			if err := f.log.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			list := f.records(audit.Filter{Action: "exec-attach", Outcome: name})
			if len(list) != 1 || ends && list[0].Details["exit_code"] != "7" {
				t.Errorf("records: %+v", list)
			}
			if all := f.records(audit.Filter{Action: "exec-attach"}); len(all) > 2 {
				t.Errorf("recorded more than once: %+v", all)
			}
		})
	}
}

func TestOneWorkspaceDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, audit.Config{})
		f.add("exec", 3)
		slow := make(chan struct{}, 10)
		f.hinder(&hindered{rows: func(ctx context.Context, filter audit.Filter) error {
			if filter.Workspace != "slow" {
				return nil
			}
			slow <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}, audit.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := f.log.Rows(ctx, audit.Filter{Workspace: "slow"}); !errors.Is(err, context.Canceled) {
					t.Errorf("of a question that nobody waits for any more: %v", err)
				}
			})
		}
		synctest.Wait() // all of them have come as far as they can
		if len(slow) == 0 {
			t.Fatal("no question is worked on")
		}
		if list := f.records(audit.Filter{}); len(list) != 3 {
			t.Errorf("others are answered with %+v", list)
		}
		f.verify()
		if n := len(slow); n > 1 {
			t.Errorf("%d of the workspace's questions were worked on at once", n)
		}
		cancel()
		wg.Wait()
	})
}

func TestAVerificationEndsWithItsRequest(t *testing.T) {
	f := newFixture(t, audit.Config{})
	f.add("exec", 3)
	ctx, cancel := context.WithCancel(t.Context())
	verifying := make(chan struct{}, 1)
	f.hinder(&hindered{rows: func(ctx context.Context, filter audit.Filter) error {
		if filter.Ascending && filter.Limit != 1000 {
			verifying <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}, audit.Config{})
	ended := make(chan error)
	go func() {
		_, err := f.log.Verify(ctx)
		ended <- err
	}()
	<-verifying
	if list := f.records(audit.Filter{}); len(list) != 3 {
		t.Errorf("meanwhile questions are answered with %+v", list)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestVerifyWhileAnotherServerCuts removes old records while a verification is about to read them.
func TestVerifyWhileAnotherServerCuts(t *testing.T) {
	for cuts, want := range map[int]sandbox.Code{1: "", 2: "", 100: sandbox.Conflict} {
		f := newFixture(t, audit.Config{})
		f.add("exec", 9)
		left := cuts
		f.hinder(&hindered{rows: func(ctx context.Context, filter audit.Filter) error {
			if !filter.Ascending || left == 0 {
				return nil
			}
			left--
			_, _, err := f.store.Audit.CutAudit(ctx, audit.Cut{Before: time.Now().Add(time.Hour), Limit: 1})
			return err
		}}, audit.Config{})
		if r, err := f.log.Verify(t.Context()); sandbox.CodeOf(err) != want || r.Problem != "" || want == "" && r.Records != int64(9-cuts) {
			t.Errorf("%d records are cut meanwhile: %+v, %v; want code %q", cuts, r, err, want)
		}
	}
}
