package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// openStore returns a store in a new file with its default workspace.
func openStore(t testing.TB) (*store.Store, sandbox.WorkspaceID) {
	t.Helper()
	s := reopen(t, filepath.Join(t.TempDir(), "modbox.db"))
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, ws
}

func reopen(t testing.TB, path string) *store.Store {
	t.Helper()
	keys, err := secret.Open(filepath.Join(filepath.Dir(path), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Open(t, path, store.WithKeys(keys))
}

// creation returns a complete creation of a sandbox called name.
func creation(ws sandbox.WorkspaceID, name string) sandbox.Creation {
	now := time.Now().UTC()
	return sandbox.Creation{
		Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Workspace: ws, Name: name, HostLabel: sandbox.HostLabel(name), State: sandbox.Provisioning,
			Image: "modbox/base:latest", Env: map[string]string{"A": "ü\n"}, Labels: map[string]string{"team": "red"},
			Resources:     sandbox.Resources{MemoryBytes: 1 << 29, CPUMilli: 1000, DiskBytes: 1 << 31},
			ReadinessPort: 65535, TTL: time.Minute, CreatedBy: "owner", CreatedAt: now, UpdatedAt: now,
		},
		RequestHash: "hash of " + name,
		Event:       sandbox.Event{Time: now, Type: sandbox.EventCreated, Message: "created", Data: map[string]string{"k": "v"}},
	}
}

// create records a sandbox and fails the test when that does not make a new one.
func create(t *testing.T, s *store.Store, c sandbox.Creation) sandbox.Sandbox {
	t.Helper()
	rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{})
	if err != nil || rec.By != sandbox.MatchNone {
		t.Fatalf("CreateSandbox(%q) = by %q, %v, want a new one", c.Sandbox.Name, rec.By, err)
	}
	return rec.Sandbox
}

// end walks a provisioning sandbox to its end.
func end(t *testing.T, s *store.Store, id sandbox.ID, at time.Time) sandbox.Sandbox {
	t.Helper()
	ev := sandbox.Event{Time: at, Type: sandbox.EventDestroying}
	if _, err := s.Sandboxes.Transition(t.Context(), id, sandbox.Provisioning, sandbox.Destroying, sandbox.Change{
		Cause: &sandbox.Cause{Code: sandbox.CauseTTL, Message: "its time is up"},
	}, ev); err != nil {
		t.Fatal(err)
	}
	sb, err := s.Sandboxes.Transition(t.Context(), id, sandbox.Destroying, sandbox.Destroyed, sandbox.Change{EndedAt: &at}, ev)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestSandboxSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%.db")
	s := reopen(t, path)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := creation(ws, "one")
	want := create(t, s, c)
	if want, err = s.Sandboxes.SetBox(t.Context(), want.ID, "sha256:abc", []byte{0, 1, 255}); err != nil {
		t.Fatal(err)
	}
	started := time.Now().UTC()
	want, err = s.Sandboxes.Transition(t.Context(), want.ID, sandbox.Provisioning, sandbox.Running,
		sandbox.Change{StartedAt: &started}, sandbox.Event{Time: started, Type: sandbox.EventRunning})
	if err != nil {
		t.Fatal(err)
	}
	want, err = s.Sandboxes.Transition(t.Context(), want.ID, sandbox.Running, sandbox.Destroying,
		sandbox.Change{Cause: &sandbox.Cause{Code: sandbox.CauseOOM, Message: "too much"}},
		sandbox.Event{Time: started, Type: sandbox.EventDestroying})
	if err != nil {
		t.Fatal(err)
	}

	again := reopen(t, path)
	for name, get := range map[string]func() (sandbox.Sandbox, error){
		"ID":    func() (sandbox.Sandbox, error) { return again.Sandboxes.SandboxByID(t.Context(), want.ID) },
		"Name":  func() (sandbox.Sandbox, error) { return again.Sandboxes.SandboxByName(t.Context(), ws, "one") },
		"Label": func() (sandbox.Sandbox, error) { return again.Sandboxes.SandboxByLabel(t.Context(), want.HostLabel) },
	} {
		got, err := get()
		if err != nil {
			t.Fatalf("SandboxBy%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("SandboxBy%s differs (-want +got):\n%s", name, d)
		}
	}
	live, err := again.Sandboxes.LiveSandboxes(t.Context())
	if d := cmp.Diff([]sandbox.Sandbox{want}, live); err != nil || d != "" {
		t.Errorf("LiveSandboxes: %v, differs (-want +got):\n%s", err, d)
	}
	if storetest.Postgres() {
		return
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the database: %v, %v, want 0600: it holds secrets", info.Mode(), err)
	}
}

func TestCreateWithABox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := reopen(t, path)
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := creation(ws, "one")
	c.Sandbox.ImageDigest, c.Sandbox.Handle = "sha256:abc", []byte{0, 1, 255}
	want := create(t, s, c)
	got, err := reopen(t, path).Sandboxes.SandboxByID(t.Context(), want.ID)
	if d := cmp.Diff(c.Sandbox, got); err != nil || d != "" {
		t.Errorf("SandboxByID: %v, differs (-want +got):\n%s", err, d)
	}
}

func TestCreateAnswersWhatExists(t *testing.T) {
	s, ws := openStore(t)
	first := creation(ws, "same")
	first.IdempotencyKey, first.KeyLifetime = "k1", time.Hour
	create(t, s, first)

	tests := []struct {
		name    string
		mutate  func(*sandbox.Creation)
		maxLive int
		want    sandbox.Match
		wantErr sandbox.Code
	}{
		{"SameName", func(*sandbox.Creation) {}, 0, sandbox.MatchName, ""},
		{"SameKey", func(c *sandbox.Creation) { c.Sandbox.Name = "other"; c.IdempotencyKey = "k1" }, 0, sandbox.MatchKey, ""},
		{"KeyBeforeName", func(c *sandbox.Creation) { c.IdempotencyKey = "k1" }, 0, sandbox.MatchKey, ""},
		{"Full", func(c *sandbox.Creation) { c.Sandbox.Name = "other" }, 1, "", sandbox.QuotaExceeded},
		{"FullButExists", func(*sandbox.Creation) {}, 1, sandbox.MatchName, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := creation(ws, "same")
			tt.mutate(&c)
			rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{MaxLive: tt.maxLive})
			if sandbox.CodeOf(err) != tt.wantErr || rec.By != tt.want {
				t.Fatalf("CreateSandbox = by %q, %v, want by %q, code %q", rec.By, err, tt.want, tt.wantErr)
			}
			if err == nil && (rec.Sandbox.ID != first.Sandbox.ID || rec.RequestHash != first.RequestHash) {
				t.Errorf("CreateSandbox answers %s of request %q, want %s of %q", rec.Sandbox.ID, rec.RequestHash, first.Sandbox.ID, first.RequestHash)
			}
		})
	}

	end(t, s, first.Sandbox.ID, time.Now())
	t.Run("KeyAfterEnd", func(t *testing.T) {
		c := creation(ws, "same")
		c.IdempotencyKey, c.KeyLifetime = "k1", time.Hour
		if rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil || rec.By != sandbox.MatchKey {
			t.Errorf("CreateSandbox = by %q, %v, want by key", rec.By, err)
		}
	})
	t.Run("KeyExpired", func(t *testing.T) {
		c := creation(ws, "same")
		c.IdempotencyKey, c.KeyLifetime = "k1", time.Hour
		c.Sandbox.CreatedAt = c.Sandbox.CreatedAt.Add(2 * time.Hour)
		second := create(t, s, c)
		got, err := s.Sandboxes.SandboxByName(t.Context(), ws, "same")
		if err != nil || got.ID != second.ID {
			t.Errorf("SandboxByName = %s, %v, want the live %s", got.ID, err, second.ID)
		}
	})
}

func TestTransitionIsCompareAndSet(t *testing.T) {
	s, ws := openStore(t)
	sb := create(t, s, creation(ws, "cas"))
	ev := sandbox.Event{Time: time.Now(), Type: sandbox.EventRunning}
	const n = 8
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := s.Sandboxes.Transition(context.WithoutCancel(t.Context()), sb.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{}, ev)
			errs <- err
		}()
	}
	won := 0
	for range n {
		switch err := <-errs; sandbox.CodeOf(err) {
		case "":
			won++
		case sandbox.Conflict:
		default:
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d same transitions won, want 1", won, n)
	}
	if _, err := s.Sandboxes.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Destroyed, sandbox.Change{}, ev); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("illegal move: %v, want code conflict", err)
	}
	if _, err := s.Sandboxes.SetBox(t.Context(), sb.ID, "x", nil); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("SetBox on a running sandbox: %v, want code conflict", err)
	}
	if _, err := s.Sandboxes.Transition(t.Context(), sandbox.NewID(), sandbox.Running, sandbox.Destroying, sandbox.Change{}, ev); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("unknown sandbox: %v, want code not_found", err)
	}
	events, err := s.Sandboxes.Events(t.Context(), sb.ID, sandbox.EventFilter{})
	if err != nil || len(events.Items) != 2 {
		t.Errorf("Events = %d events, %v, want created and one running", len(events.Items), err)
	}
}

func TestEvents(t *testing.T) {
	s, ws := openStore(t)
	c := creation(ws, "ev")
	sb := create(t, s, c)
	for range 4 {
		if err := s.Sandboxes.AppendEvent(t.Context(), sandbox.Event{Sandbox: sb.ID, Time: time.Now(), Type: sandbox.EventExec}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.Sandboxes.Events(t.Context(), sb.ID, sandbox.EventFilter{})
	all := events.Items
	if err != nil || len(all) != 5 || events.Next != "" {
		t.Fatalf("Events = %d, next %q, %v, want 5 and no next", len(all), events.Next, err)
	}
	first := c.Event
	first.Sandbox, first.SandboxName, first.Seq = sb.ID, sb.Name, all[0].Seq
	if d := cmp.Diff(first, all[0]); d != "" {
		t.Errorf("first event differs (-want +got):\n%s", d)
	}
	typed, err := s.Sandboxes.Events(t.Context(), sb.ID, sandbox.EventFilter{Types: []sandbox.EventType{first.Type, sandbox.EventFailed}})
	if err != nil || len(typed.Items) != 1 || typed.Items[0].Seq != first.Seq {
		t.Errorf("Events of type %s = %+v, %v, want the first", first.Type, typed.Items, err)
	}
	seqs := func(evs []sandbox.Event) (out []int64) {
		for _, ev := range evs {
			out = append(out, ev.Seq-all[0].Seq)
		}
		return out
	}
	for _, tt := range []struct {
		name       string
		after      int64
		limit      int
		descending bool
		want       []int64
		next       []int64
	}{
		{"After", all[1].Seq, 2, false, []int64{2, 3}, []int64{4}},
		{"Newest", 0, 2, true, []int64{4, 3}, []int64{2, 1}},
		{"NewestAfter", all[2].Seq, 1, true, []int64{4}, []int64{3}},
		{"End", all[4].Seq, 0, false, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sandbox.EventFilter{AfterSeq: tt.after, Limit: tt.limit, Descending: tt.descending}
			got, err := s.Sandboxes.Events(t.Context(), sb.ID, f)
			if d := cmp.Diff(tt.want, seqs(got.Items)); err != nil || d != "" {
				t.Errorf("Events: %v, differs (-want +got):\n%s", err, d)
			}
			if (got.Next != "") != (tt.next != nil) {
				t.Errorf("next cursor %q, want one: %v", got.Next, tt.next != nil)
			}
			if f.Cursor = got.Next; f.Cursor != "" {
				got, err = s.Sandboxes.Events(t.Context(), sb.ID, f)
				if d := cmp.Diff(tt.next, seqs(got.Items)); err != nil || d != "" {
					t.Errorf("the next page: %v, differs (-want +got):\n%s", err, d)
				}
				f.Descending = !f.Descending
				if _, err := s.Sandboxes.Events(t.Context(), sb.ID, f); sandbox.CodeOf(err) != sandbox.Invalid {
					t.Errorf("a cursor of the other direction: %v, want invalid", err)
				}
			}
		})
	}
	if err := s.Sandboxes.AppendEvent(t.Context(), sandbox.Event{Sandbox: sandbox.NewID(), Type: sandbox.EventExec}); err == nil {
		t.Error("AppendEvent for an unknown sandbox succeeded; foreign keys are off")
	}
}

func TestCanceledContextWritesNothing(t *testing.T) {
	s, ws := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sandboxes.CreateSandbox(ctx, creation(ws, "x"), quota.Admission{}); err == nil {
		t.Fatal("CreateSandbox with a dead context succeeded")
	}
	if _, err := s.Sandboxes.SandboxByName(t.Context(), ws, "x"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("SandboxByName: %v, want code not_found", err)
	}
}
