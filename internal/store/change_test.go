package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// writers is the number of goroutines that change a record at the same time.
const writers = 16

// atOnce calls f in as many goroutines as there are writers and waits for all of them.
func atOnce(f func(i int)) {
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// TestStartAgainHasABound checks that however many callers there are, a sandbox is started again as often as its creation says, and only while it is provisioning.
func TestStartAgainHasABound(t *testing.T) {
	s, ws := openStore(t)
	again := func(id sandbox.ID) (sandbox.Sandbox, error) {
		return s.Sandboxes.StartAgain(t.Context(), id, sandbox.Event{Sandbox: id, Time: time.Now().UTC(), Type: sandbox.EventRecovered})
	}
	const left = 3
	c := creation(ws, "again")
	c.StartsLeft = left
	sb := create(t, s, c)
	var begun atomic.Int64
	atOnce(func(int) {
		got, err := again(sb.ID)
		if err == nil {
			begun.Add(1)
			if got.State != sandbox.Provisioning || got.Env["A"] != "ü\n" {
				t.Errorf("StartAgain = %+v", got)
			}
		} else if sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("StartAgain = %v, want code conflict", err)
		}
	})
	if begun.Load() != left {
		t.Errorf("begun %d times, want %d", begun.Load(), left)
	}
	c = creation(ws, "runs")
	c.StartsLeft = left
	runs := create(t, s, c)
	if _, err := s.Sandboxes.Transition(t.Context(), runs.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{}, sandbox.Event{Time: time.Now(), Type: sandbox.EventRunning}); err != nil {
		t.Fatal(err)
	}
	for id, code := range map[sandbox.ID]sandbox.Code{
		create(t, s, creation(ws, "none")).ID: sandbox.Conflict, runs.ID: sandbox.Conflict, sandbox.NewID(): sandbox.NotFound,
	} {
		if _, err := again(id); sandbox.CodeOf(err) != code {
			t.Errorf("StartAgain = %v, want code %s", err, code)
		}
	}
}

// TestChangesOfOneSandboxAtOnce checks that changes of different fields never undo each other, and that each writer
// gets the row with its own change.
func TestChangesOfOneSandboxAtOnce(t *testing.T) {
	s, ws := openStore(t)
	sb := create(t, s, creation(ws, "busy"))
	now := time.Now().UTC()
	atOnce(func(i int) {
		ev := sandbox.Event{Time: now, Type: sandbox.EventTTL}
		switch {
		case i == 0:
			if got, err := s.Sandboxes.Transition(t.Context(), sb.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{StartedAt: &now}, ev); err != nil || got.State != sandbox.Running {
				t.Errorf("Transition = %s, %v", got.State, err)
			}
		case i%2 == 0:
			ttl := time.Duration(i) * time.Hour
			if got, err := s.Sandboxes.ChangeSandbox(t.Context(), sb.ID, sandbox.Change{TTL: &ttl}, ev); err != nil || got.TTL != ttl {
				t.Errorf("ChangeSandbox to a ttl of %s = %s, %v", ttl, got.TTL, err)
			}
		default:
			ports := []sandbox.PublishedPort{{Port: uint16(i), Label: fmt.Sprint("label-", i)}}
			got, err := s.Sandboxes.ChangeSandbox(t.Context(), sb.ID, sandbox.Change{Published: &ports}, ev)
			if err != nil || len(got.Published) != 1 || got.Published[0].Port != uint16(i) {
				t.Errorf("ChangeSandbox to port %d = %v, %v", i, got.Published, err)
			}
		}
	})
	got, err := s.Sandboxes.SandboxByID(t.Context(), sb.ID)
	if err != nil || got.State != sandbox.Running || !got.StartedAt.Equal(now) || got.TTL < 2*time.Hour || len(got.Published) != 1 {
		t.Errorf("at the end it is %s since %s, with ttl %s and ports %v, %v: want a change of each kind", got.State, got.StartedAt, got.TTL, got.Published, err)
	}
	if diff := cmp.Diff(sb.Env, got.Env); diff != "" || got.Name != sb.Name || got.Resources != sb.Resources {
		t.Errorf("other fields changed: %+v", got)
	}
	events, err := s.Sandboxes.Events(t.Context(), sb.ID, sandbox.EventFilter{})
	if err != nil || len(events.Items) != writers+1 {
		t.Errorf("%d events, %v; want one for each change and for the creation", len(events.Items), err)
	}
}

// TestReplacementsOfOneRecordAtOnce checks that no writer that reads and replaces loses the change of another.
func TestReplacementsOfOneRecordAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	s, beside := reopen(t, path), reopen(t, path) // the second is of a program beside the server
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry := catalogue.Entry{ID: "i", Workspace: ws, Name: "n", Image: "x", CreatedAt: time.Now().UTC()}
	if err := s.Catalogue.CreateCatalogueImage(t.Context(), entry, 10); err != nil {
		t.Fatal(err)
	}
	credential := registry.Credential{ID: "r", Workspace: ws, Name: "n", Password: secret.Sealed{KeyID: "k", Data: []byte{0}}, CreatedAt: time.Now().UTC()}
	if err := s.Registries.CreateRegistry(t.Context(), credential, 10); err != nil {
		t.Fatal(err)
	}
	atOnce(func(i int) {
		mark := string(rune('a' + i))
		err := retry.Change(t.Context(), func() error {
			prev, err := s.Catalogue.CatalogueImage(t.Context(), ws, "i")
			if err != nil {
				return err
			}
			next := prev
			next.Description += mark
			return s.Catalogue.UpdateCatalogueImage(t.Context(), prev, next)
		})
		if err != nil {
			t.Errorf("entry: %v", err)
		}
		err = retry.Change(t.Context(), func() error {
			prev, err := s.Registries.Registry(t.Context(), ws, "r")
			if err != nil {
				return err
			}
			next := prev
			next.Username += mark
			return s.Registries.UpdateRegistry(t.Context(), prev, next)
		})
		if err != nil {
			t.Errorf("credential: %v", err)
		}
		if _, err := []*store.Store{s, beside}[i%2].Audit.ChangeAudit(t.Context(), &audit.Change{Records: []*audit.Record{{Action: mark}, {Action: mark}}}); err != nil {
			t.Errorf("audit log: %v", err)
		}
	})
	gotEntry, err := s.Catalogue.CatalogueImage(t.Context(), ws, "i")
	if err != nil {
		t.Error(err)
	}
	gotCredential, err := s.Registries.Registry(t.Context(), ws, "r")
	if err != nil {
		t.Error(err)
	}
	for i := range writers {
		mark := string(rune('a' + i))
		if strings.Count(gotEntry.Description, mark) != 1 || strings.Count(gotCredential.Username, mark) != 1 {
			t.Errorf("change %s is lost: %q, %q", mark, gotEntry.Description, gotCredential.Username)
		}
	}
	rows, err := s.Audit.AuditRows(t.Context(), audit.Filter{Ascending: true})
	if err != nil || len(rows.Items) != 2*writers {
		t.Errorf("audit log: %d records, %v", len(rows.Items), err)
	}
	verifier := audit.From(audit.Point{})
	for _, r := range rows.Items {
		if err := verifier.Check(r); err != nil {
			t.Fatalf("audit log: %v", err)
		}
	}
	if chain, err := s.Audit.AuditChain(t.Context()); err != nil || chain.Head != verifier.At() {
		t.Errorf("audit log: it ends at %+v, %v, want %+v", chain, err, verifier.At())
	}
}

// TestStaleReplacementsAreRefused replaces records that are not what was read any more.
func TestStaleReplacementsAreRefused(t *testing.T) {
	s, ws := openStore(t)
	sb := create(t, s, creation(ws, "runs"))
	first := sandbox.Execution{ID: "e", Sandbox: sb.ID, Workspace: ws, Kind: sandbox.Job, Argv: []string{"true"}, State: sandbox.ExecutionQueued, CreatedAt: time.Now().UTC()}
	if err := s.Executions.CreateExecution(t.Context(), first, 1); err != nil {
		t.Fatal(err)
	}
	runs, ended, unknown := first, first, first
	runs.State, runs.StartedAt = sandbox.ExecutionRunning, time.Now().UTC()
	ended.State, ended.EndedAt = sandbox.ExecutionCompleted, time.Now().UTC()
	unknown.ID = "other"
	for _, step := range []struct {
		what       string
		prev, next sandbox.Execution
		want       sandbox.Code
		state      sandbox.ExecutionState
	}{
		{"its start", first, runs, "", sandbox.ExecutionRunning},
		{"an end over its state before the start", first, ended, sandbox.Conflict, sandbox.ExecutionRunning},
		{"its end", runs, ended, "", sandbox.ExecutionCompleted},
		{"a second end", runs, ended, sandbox.Ended, sandbox.ExecutionCompleted},
		{"an unknown execution", unknown, runs, sandbox.NotFound, sandbox.ExecutionCompleted},
	} {
		if err := s.Executions.UpdateExecution(t.Context(), step.prev, step.next); sandbox.CodeOf(err) != step.want {
			t.Errorf("%s: %v, want code %q", step.what, err, step.want)
		}
		if got, err := s.Executions.Execution(t.Context(), "e"); err != nil || got.State != step.state {
			t.Errorf("after %s: %s, %v, want %s", step.what, got.State, err, step.state)
		}
	}
}

// TestSecretsThatChangeMeanwhileStay changes secrets between the read and the replacement of a change of keys.
func TestSecretsThatChangeMeanwhileStay(t *testing.T) {
	s, ws := openStore(t)
	credential := registry.Credential{ID: "r", Workspace: ws, Name: "n", Password: secret.Sealed{KeyID: "old", Data: []byte{1}}, CreatedAt: time.Now().UTC()}
	if err := s.Registries.CreateRegistry(t.Context(), credential, 10); err != nil {
		t.Fatal(err)
	}
	set, kept, ended := create(t, s, creation(ws, "set")), create(t, s, creation(ws, "kept")), create(t, s, creation(ws, "ended"))
	prev, err := s.Secrets.StoredSecrets(t.Context())
	if err != nil || len(prev) != 7 { // variables and request hashes of three, and a password
		t.Fatalf("%d secrets, %v", len(prev), err)
	}
	next := append([]secret.Stored{}, prev...)
	for i := range next {
		next[i].Sealed = secret.Sealed{KeyID: "new", Data: []byte{2}}
	}
	changed := credential
	changed.Password.Data = []byte{3}
	if err := s.Registries.UpdateRegistry(t.Context(), credential, changed); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NEW": "1"}
	if err := s.Sandboxes.SetEnv(t.Context(), set.ID, env); err != nil {
		t.Fatal(err)
	}
	end(t, s, ended.ID, time.Now())
	if err := s.Secrets.ReplaceSecrets(t.Context(), prev, next); err != nil {
		t.Fatal(err)
	}
	now, err := s.Secrets.StoredSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, x := range now {
		count[x.Sealed.KeyID]++
		if x.ID == string(kept.ID) && x.Sealed.KeyID != "new" {
			t.Errorf("%s of %s was not replaced", x.Place, x.ID)
		}
	}
	// The request hashes of all three and the variables of the sandbox that stayed as it was.
	if count["new"] != 4 || count["old"] != 1 || len(now) != 6 {
		t.Errorf("keys of the secrets: %v", count)
	}
	if got, err := s.Registries.Registry(t.Context(), ws, "r"); err != nil || cmp.Diff(changed.Password, got.Password) != "" {
		t.Errorf("the new password: %+v, %v", got.Password, err)
	}
	if got, err := s.Sandboxes.SandboxByID(t.Context(), ended.ID); err != nil || got.Env != nil {
		t.Errorf("variables of the ended sandbox: %v, %v", got.Env, err)
	}
}

// writing are keys that write to the database whenever they encrypt or decrypt. In a transaction that would wait
// for the transaction itself.
type writing struct {
	store.Keys
	s **store.Store
}

func (w writing) Seal(plain, object string) (secret.Sealed, error) {
	if err := (*w.s).Check(context.Background()); err != nil {
		return secret.Sealed{}, err
	}
	return w.Keys.Seal(plain, object)
}

func (w writing) Unseal(x secret.Sealed, object string) (string, error) {
	if err := (*w.s).Check(context.Background()); err != nil {
		return "", err
	}
	return w.Keys.Unseal(x, object)
}

// TestKeysAreNotUsedInTransactions makes all changes of records with secrets.
func TestKeysAreNotUsedInTransactions(t *testing.T) {
	dir := t.TempDir()
	keys, err := secret.Open(filepath.Join(dir, "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	var s *store.Store
	s = storetest.Open(t, filepath.Join(dir, "modbox.db"), store.WithKeys(writing{keys, &s}))
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ev := sandbox.Event{Time: time.Now(), Type: sandbox.EventRunning}
	c := creation(ws, "one")
	first := create(t, s, c)
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil || rec.RequestHash != c.RequestHash || cmp.Diff(c.Sandbox.Env, rec.Sandbox.Env) != "" {
		t.Errorf("the same again: %+v, %v", rec, err)
	}
	if recs, err := s.Sandboxes.CreateForks(t.Context(), []sandbox.Creation{creation(ws, "two"), creation(ws, "one")}, quota.Admission{}); err != nil || recs[1].Sandbox.ID != first.ID {
		t.Errorf("forks: %+v, %v", recs, err)
	}
	for _, step := range []struct{ from, to sandbox.State }{
		{sandbox.Provisioning, sandbox.Running}, {sandbox.Running, sandbox.Pausing}, {sandbox.Pausing, sandbox.Paused},
	} {
		if _, err := s.Sandboxes.Transition(t.Context(), first.ID, step.from, step.to, sandbox.Change{}, ev); err != nil {
			t.Error(err)
		}
	}
	if got, err := s.Sandboxes.ResumeSandbox(t.Context(), first.ID, sandbox.Change{}, ev, quota.Admission{}); err != nil || cmp.Diff(c.Sandbox.Env, got.Env) != "" {
		t.Errorf("resumed: %v, %v", got.Env, err)
	}
	if err := s.Sandboxes.SetEnv(t.Context(), first.ID, map[string]string{"B": "c"}); err != nil {
		t.Error(err)
	}
	sn := sandbox.Snapshot{ID: "p", Workspace: ws, Name: "n", Env: map[string]string{"A": "b"}, CreatedAt: time.Now()}
	if err := s.Snapshots.BeginSnapshot(t.Context(), sn, 10, 1<<30, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.FinishSnapshot(t.Context(), "p", sandbox.SnapshotResult{}, 1<<30, quota.Admission{}, sandbox.Event{}); err != nil {
		t.Error(err)
	}
	if got, err := s.Snapshots.TagSnapshot(t.Context(), "p", "v", sandbox.Event{}); err != nil || cmp.Diff(sn.Env, got.Env) != "" {
		t.Errorf("tagged: %v, %v", got.Env, err)
	}
	replaced := creation(ws, "one")
	replaced.Replaces = &sandbox.Ending{Cause: sandbox.Cause{Code: sandbox.CauseTTL}, Event: ev}
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), replaced, quota.Admission{}); err != nil || rec.Dying == nil || rec.Dying.State != sandbox.Destroying {
		t.Errorf("replaced: %+v, %v", rec, err)
	}
}
