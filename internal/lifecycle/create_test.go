package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestLifeOfASandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Name: "Job 1", Env: map[string]string{"SECRET": "hush"}, Labels: map[string]string{"a": "b"}})
	if sb.State != sandbox.Provisioning || sb.Image != "modbox/base:latest" || sb.CreatedBy != e.caller.User {
		t.Errorf("Create = %+v", sb)
	}
	want := sandbox.Resources{MemoryBytes: 512 << 20, CPUMilli: 1000, DiskBytes: 2 << 30}
	if d := cmp.Diff(want, sb.Resources); d != "" {
		t.Errorf("default resources differ (-want +got):\n%s", d)
	}
	sb = s.reach("Job 1", sandbox.Running)
	if sb.StartedAt.IsZero() || sb.ImageDigest != "sha256:1" || sb.Handle == nil {
		t.Errorf("running sandbox = %+v, want it started, with digest and handle", sb)
	}
	stream, err := s.Guest().Exec(t.Context(), e.caller, "Job 1", agentapi.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := stream.Next(); err != nil || f.Type != agentapi.FrameExit {
		t.Errorf("Next = %+v, %v, want an exit", f, err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	byLabel, ok := s.ByLabel(sb.HostLabel)
	if !ok || byLabel.ID != sb.ID {
		t.Errorf("ByLabel = %s, %v, want %s", byLabel.ID, ok, sb.ID)
	}

	ended := s.destroy(string(sb.ID))
	if ended.State != sandbox.Destroyed || ended.Cause.Code != sandbox.CauseDestroyed || ended.EndedAt.IsZero() || ended.Handle != nil {
		t.Errorf("destroyed sandbox = %+v", ended)
	}
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes left: %v", ids)
	}
	again := s.destroy("Job 1")
	if d := cmp.Diff(ended, again); d != "" {
		t.Errorf("second Destroy differs (-first +second):\n%s", d)
	}
	if byLabel, ok := s.ByLabel(sb.HostLabel); ok {
		t.Errorf("ByLabel after the end = %s, want none", byLabel.State)
	}
	if byLabel, err := s.EndedByLabel(t.Context(), sb.HostLabel); err != nil || byLabel.State != sandbox.Destroyed {
		t.Errorf("EndedByLabel = %s, %v, want destroyed", byLabel.State, err)
	}
	_, err = s.Guest().Exec(t.Context(), e.caller, "Job 1", agentapi.Command{Argv: []string{"true"}})
	if sandbox.CodeOf(err) != sandbox.Ended || !strings.Contains(err.Error(), "destroyed by owner") {
		t.Errorf("Exec after the end: %v, want code ended and the cause", err)
	}
	wantEvents := []sandbox.EventType{sandbox.EventCreated, sandbox.EventRunning, sandbox.EventDestroying, sandbox.EventDestroyed}
	// The end of the command is written when there is time, and tested elsewhere.
	gotEvents := slices.DeleteFunc(s.eventTypes("Job 1"), func(e sandbox.EventType) bool { return e == sandbox.EventExec })
	if d := cmp.Diff(wantEvents, gotEvents); d != "" {
		t.Errorf("events differ (-want +got):\n%s", d)
	}
	events, _ := s.Events(t.Context(), e.caller, "Job 1", sandbox.EventFilter{})
	for _, ev := range events.Items {
		if strings.Contains(ev.Message, "hush") || strings.Contains(strings.Join(mapValues(ev.Data), " "), "hush") {
			t.Errorf("event %v tells a secret", ev)
		}
	}
}

func mapValues(m map[string]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

func TestSameName(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	req := lifecycle.CreateRequest{Name: "job", Env: map[string]string{"A": "1"}}
	first := s.run(req)

	again, created, err := s.Create(t.Context(), e.caller, req)
	if err != nil || created || again.ID != first.ID {
		t.Errorf("the same request again = %s, created %v, %v; want the existing %s", again.ID, created, err, first.ID)
	}
	other := req
	other.Env = map[string]string{"A": "2"}
	_, _, err = s.Create(t.Context(), e.caller, other)
	if sandbox.CodeOf(err) != sandbox.Exists || !strings.Contains(err.Error(), string(first.ID)) {
		t.Errorf("a different request: %v, want code exists naming %s", err, first.ID)
	}
	other.Replace = true
	second := s.run(other)
	if old, err := s.Get(t.Context(), e.caller, string(first.ID)); err != nil || old.State != sandbox.Destroyed || old.Cause.Code != sandbox.CauseReplaced {
		t.Errorf("the replaced sandbox is %s (%v), %v; want destroyed, replaced", old.State, old.Cause, err)
	}
	if got, err := s.Get(t.Context(), e.caller, "job"); err != nil || got.ID != second.ID {
		t.Errorf("Get by name = %s, %v, want the live %s", got.ID, err, second.ID)
	}
	s.destroy("job")
	if got, err := s.Get(t.Context(), e.caller, "job"); err != nil || got.ID != second.ID {
		t.Errorf("Get by name after the end = %s, %v, want the newest %s", got.ID, err, second.ID)
	}
	third := s.create(req)
	if third.ID == first.ID {
		t.Error("the name of a destroyed sandbox was not reused")
	}
	stranger := sandbox.Caller{User: "x", Workspace: sandbox.NewWorkspaceID()}
	for _, ref := range []string{"job", string(third.ID)} {
		if _, err := s.Get(t.Context(), stranger, ref); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Get(%q) from another workspace: %v, want code not_found", ref, err)
		}
		if _, err := s.Destroy(t.Context(), stranger, ref, ""); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Destroy(%q) from another workspace: %v, want code not_found", ref, err)
		}
	}
}

func TestCreateWaitsForADyingNamesake(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	req := lifecycle.CreateRequest{Name: "job"}
	first := s.run(req)
	release, entered := make(chan struct{}), make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Destroy" {
			close(entered)
			<-release
		}
		return nil
	}, nil)
	done := make(chan sandbox.Sandbox)
	go func() { sb, _ := s.Destroy(t.Context(), e.caller, "job", ""); done <- sb }()
	<-entered
	if sb, err := s.Get(t.Context(), e.caller, "job"); err != nil || sb.State != sandbox.Destroying {
		t.Errorf("Get while it is destroyed = %s, %v, want destroying", sb.State, err)
	}
	created := make(chan sandbox.Sandbox)
	go func() { sb, _, _ := s.Create(t.Context(), e.caller, req); created <- sb }()
	eventually(t, "the new one has the name", func() bool {
		sb, err := s.Get(t.Context(), e.caller, "job")
		return err == nil && sb.ID != first.ID
	})
	select {
	case <-created:
		t.Error("Create answered before nothing was left of the other")
	default:
	}
	s.driver.faults.on(nil, nil)
	close(release)
	if sb := <-done; sb.State != sandbox.Destroyed {
		t.Errorf("Destroy = %s, want destroyed", sb.State)
	}
	if sb := <-created; sb.ID == first.ID || sb.State != sandbox.Provisioning {
		t.Errorf("Create = %s %s, want a new provisioning one", sb.ID, sb.State)
	}
}

func TestConcurrentCreatesMakeOne(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const n = 20
	ids := make(chan sandbox.ID, n)
	news := make(chan bool, n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			sb, created, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: "one"})
			if err != nil {
				t.Error(err)
			}
			ids <- sb.ID
			news <- created
		})
	}
	wg.Wait()
	first, count := <-ids, 0
	for range n - 1 {
		if id := <-ids; id != first {
			t.Errorf("two sandboxes: %s and %s", first, id)
		}
	}
	for range n {
		if <-news {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d creates say they made it, want 1", count)
	}
}

func TestIdempotencyKey(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	req := lifecycle.CreateRequest{IdempotencyKey: "k"}
	first := s.run(req)
	s.destroy(string(first.ID))
	again, created, err := s.Create(t.Context(), e.caller, req)
	if err != nil || created || again.ID != first.ID || again.State != sandbox.Destroyed {
		t.Errorf("Create again = %s %s, created %v, %v; want the ended %s", again.ID, again.State, created, err, first.ID)
	}
	req.Name = "other"
	if _, _, err := s.Create(t.Context(), e.caller, req); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("the key for another request: %v, want code conflict", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	e := newEnv(t)
	e.cfg.Max = sandbox.Resources{MemoryBytes: 1 << 30}
	s := e.start()
	long := strings.Repeat("x", 256)
	many := map[string]string{}
	for i := range 300 {
		many["V"+strings.Repeat("x", i)] = ""
	}
	tests := []struct {
		name  string
		req   lifecycle.CreateRequest
		field string
	}{
		{"LongName", lifecycle.CreateRequest{Name: long}, "name"},
		{"NameWithControl", lifecycle.CreateRequest{Name: "a\nb"}, "name"},
		{"NameNotUTF8", lifecycle.CreateRequest{Name: "a\xff"}, "name"},
		{"EnvName", lifecycle.CreateRequest{Env: map[string]string{"1A": ""}}, "env.1A"},
		{"EnvNameEquals", lifecycle.CreateRequest{Env: map[string]string{"A=B": ""}}, "env.A=B"},
		{"EnvNameEmpty", lifecycle.CreateRequest{Env: map[string]string{"": ""}}, "env."},
		{"EnvNUL", lifecycle.CreateRequest{Env: map[string]string{"A": "x\x00"}}, "env.A"},
		{"EnvMany", lifecycle.CreateRequest{Env: many}, "env"},
		{"EnvBig", lifecycle.CreateRequest{Env: map[string]string{"A": strings.Repeat("x", sandbox.EnvBytesMax)}}, "env"},
		{"LabelKey", lifecycle.CreateRequest{Labels: map[string]string{"a\tb": ""}}, "labels.a?b"},
		{"LabelValue", lifecycle.CreateRequest{Labels: map[string]string{"a": long + "y"}}, "labels.a"},
		{"TTLLong", lifecycle.CreateRequest{TTL: 25 * time.Hour}, "ttl_seconds"},
		{"TTLNegative", lifecycle.CreateRequest{TTL: -1}, "ttl_seconds"},
		{"MemoryLow", lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 1}}, "resources.memory"},
		{"MemoryHigh", lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 2 << 30}}, "resources.memory"},
		{"CPUNegative", lifecycle.CreateRequest{Resources: sandbox.Resources{CPUMilli: -1}}, "resources.cpu"},
		{"DiskHigh", lifecycle.CreateRequest{Resources: sandbox.Resources{DiskBytes: 1 << 60}}, "resources.disk"},
		{"ImageUnknown", lifecycle.CreateRequest{Image: "nope"}, "image"},
		{"ImageIDUnknown", lifecycle.CreateRequest{ImageID: "nope"}, "image_id"},
		{"KeyLong", lifecycle.CreateRequest{IdempotencyKey: long}, "Idempotency-Key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := s.Create(t.Context(), e.caller, tt.req)
			coded, ok := err.(*sandbox.Error)
			if !ok || coded.Code != sandbox.Invalid || coded.Field != tt.field {
				t.Errorf("Create: %v, want invalid %s", err, tt.field)
			}
		})
	}
	_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 2 << 30}})
	if err == nil || !strings.Contains(err.Error(), "1Gi") {
		t.Errorf("too much memory: %v, want the maximum 1Gi in the message", err)
	}
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{States: sandbox.States})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("List = %d sandboxes, %v, want none", len(page.Items), err)
	}
}

func TestImageDefaults(t *testing.T) {
	s := newEnv(t).start()
	sb := s.create(lifecycle.CreateRequest{Image: "modbox/big"})
	if sb.Resources.MemoryBytes != 8<<30 || sb.TTL != time.Hour {
		t.Errorf("memory %d, ttl %s; want the server's maximum of 8Gi and the image's hour", sb.Resources.MemoryBytes, sb.TTL)
	}
	sb = s.create(lifecycle.CreateRequest{Image: "modbox/big", TTL: time.Minute, Resources: sandbox.Resources{MemoryBytes: 1 << 30}})
	if sb.Resources.MemoryBytes != 1<<30 || sb.TTL != time.Minute {
		t.Errorf("memory %d, ttl %s; want what was asked for", sb.Resources.MemoryBytes, sb.TTL)
	}
}

func TestSettingsReachTheDriver(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxProcesses = 77
	e.cfg.Defaults = sandbox.Resources{MemoryBytes: 300 << 20, CPUMilli: 300, DiskBytes: 400 << 20}
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Name: "My Job"})
	s.reach(string(sb.ID), sandbox.Running)
	got, _ := s.driver.specs.Load(sb.ID)
	want := driver.Spec{ID: sb.ID, Hostname: "my-job", RootFS: "/nowhere/sha256:1", Resources: e.cfg.Defaults, MaxProcesses: 77}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the box's spec differs (-want +got):\n%s", diff)
	}
}

func TestQuota(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSandboxes = 2
	s := e.start()
	first := s.run(lifecycle.CreateRequest{Name: "a"})
	s.create(lifecycle.CreateRequest{Name: "b"})
	if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "c"}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("Create over the limit: %v, want code quota_exceeded", err)
	}
	s.destroy(string(first.ID))
	s.create(lifecycle.CreateRequest{Name: "c"})
}

// TestBootsTakeTurns: while many sandboxes of a workspace wait for their boot, the sandbox of another workspace boots after
// one of them at most.
func TestBootsTakeTurns(t *testing.T) {
	e := newEnv(t)
	e.cfg.CreateConcurrency = 1
	s := e.start()
	other := e.workspace("other")
	const many = 50
	s.setQuota(quota.Limits{quota.LimitSandboxes: many, quota.LimitCreates: 0, quota.LimitMemory: 0, quota.LimitCPU: 0, quota.LimitDisk: 0})
	entered, release := make(chan struct{}, many+1), make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Create" {
			entered <- struct{}{}
			<-release
		}
		return nil
	}, nil)
	for i := range many {
		s.create(lifecycle.CreateRequest{Name: fmt.Sprintf("box-%d", i)})
	}
	<-entered
	if _, _, err := s.Create(t.Context(), other, lifecycle.CreateRequest{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all others wait", func() bool { return s.WaitingBoots() == many })
	boots := func() (n int) {
		for _, call := range s.driver.faults.called() {
			if call == "driver.Create" {
				n++
			}
		}
		return n
	}
	for boots() < 3 { // the first, at most one more, and the other's
		release <- struct{}{}
		<-entered
	}
	release <- struct{}{}
	eventually(t, "the other's sandbox runs", func() bool {
		sb, err := s.Get(t.Context(), other, "box")
		return err == nil && sb.State == sandbox.Running
	})
	if n := boots(); n > 4 {
		t.Errorf("%d boxes were begun until the other's ran", n)
	}
	s.driver.faults.on(nil, nil)
	close(release)
}
