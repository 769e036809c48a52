package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

// stateDir is that of a server that runs, as far as its database goes.
func stateDir(t *testing.T) (string, *store.Store) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, st
}

func TestTokenWithoutAToken(t *testing.T) {
	dir, st := stateDir(t)
	a, err := auth.New(st)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	r := invoke(t, nil, "", "token", "create", "found again", "--state-dir", dir, "--expires-in", "1h")
	if r.code != 0 {
		t.Fatalf("token create = %+v", r)
	}
	made, err := st.TokenByHash(t.Context(), auth.Hash(strings.TrimSpace(r.stdout)))
	if err != nil {
		t.Fatal(err)
	}
	ws, user, err := st.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if made.Workspace != ws || made.User != user || made.Description != "found again" || made.ExpiresAt.Sub(made.CreatedAt) != time.Hour {
		t.Errorf("the token made is %+v", made)
	}
	rows, err := st.AuditRows(t.Context(), sandbox.AuditFilter{Action: "create-token", Object: made.ID, Workspace: ws})
	if err != nil || len(rows) != 1 || !strings.Contains(string(rows[0].Record), `"via":"local"`) {
		t.Errorf("records of it: %+v, %v", rows, err)
	}
	if r := invoke(t, nil, "", "token", "create", "--state-dir", t.TempDir()); r.code != exitError || !strings.Contains(r.stderr, "no server has run") {
		t.Errorf("token create for no server = %+v", r)
	}
}

func TestDigestsInUse(t *testing.T) {
	dir, st := stateDir(t)
	ws, user, err := st.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) sandbox.ID {
		now := time.Now().UTC()
		c := sandbox.Creation{RequestHash: name, Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Workspace: ws, Name: name, HostLabel: sandbox.HostLabel(name), State: sandbox.Provisioning,
			Image: "x", Resources: sandbox.Resources{MemoryBytes: 1, CPUMilli: 1, DiskBytes: 1}, CreatedBy: user, CreatedAt: now, UpdatedAt: now,
		}}
		if _, err := st.CreateSandbox(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.Sandbox.ID
	}
	inUse := digestsInUse(filepath.Join(dir, databaseFile))
	starts, ended := create("starts"), create("ended")
	if _, err := st.SetBox(t.Context(), ended, "sha256:old", nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range [][2]sandbox.State{{sandbox.Provisioning, sandbox.Destroying}, {sandbox.Destroying, sandbox.Destroyed}} {
		if _, err := st.Transition(t.Context(), ended, step[0], step[1], func(*sandbox.Sandbox) {}, sandbox.Event{Type: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := inUse(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("while a sandbox is being started: %v, %v; want unavailable", got, err)
	}
	if _, err := st.SetBox(t.Context(), starts, "sha256:new", nil); err != nil {
		t.Fatal(err)
	}
	got, err := inUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sha256:new"}, got); diff != "" {
		t.Errorf("digests in use (-want +got):\n%s", diff)
	}
	if got, err := digestsInUse(filepath.Join(t.TempDir(), databaseFile))(t.Context()); got != nil || err != nil {
		t.Errorf("without a server: %v, %v", got, err)
	}
}
