package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestListPages(t *testing.T) {
	s, ws := openStore(t)
	at := time.Now().UTC()
	var want []string
	for i := range 7 {
		c := creation(ws, fmt.Sprint("n", i))
		c.Sandbox.CreatedAt = at.Add(time.Duration(i/2) * time.Second) // pairs share a time
		c.Sandbox.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
		create(t, s, c)
		want = append([]string{c.Sandbox.Name}, want...)
	}
	list := func(f sandbox.Filter) (names []string) {
		t.Helper()
		for pages := 0; ; pages++ {
			page, err := s.Sandboxes.ListSandboxes(t.Context(), ws, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, sb := range page.Items {
				names = append(names, sb.Name)
			}
			if page.Next == "" {
				return names
			}
			f.Cursor = page.Next
		}
	}
	for limit := range 8 {
		if d := cmp.Diff(want, list(sandbox.Filter{Limit: limit})); d != "" {
			t.Errorf("pages of %d differ (-want +got):\n%s", limit, d)
		}
	}
	ended, err := s.Sandboxes.SandboxByName(t.Context(), ws, "n4")
	if err != nil {
		t.Fatal(err)
	}
	end(t, s, ended.ID, at)
	for name, tt := range map[string]struct {
		filter sandbox.Filter
		want   []string
	}{
		"Live":       {sandbox.Filter{}, []string{"n6", "n5", "n3", "n2", "n1", "n0"}},
		"Ended":      {sandbox.Filter{States: []sandbox.State{sandbox.Destroyed}}, []string{"n4"}},
		"All":        {sandbox.Filter{States: sandbox.States, Limit: 2}, want},
		"Label":      {sandbox.Filter{Labels: map[string]string{"parity": "0"}}, []string{"n6", "n2", "n0"}},
		"LabelOther": {sandbox.Filter{Labels: map[string]string{"parity": "0", "x": "y"}}, nil},
		"Name":       {sandbox.Filter{Name: "n3"}, []string{"n3"}},
		"NoSuchName": {sandbox.Filter{Name: "n4"}, nil},
	} {
		if d := cmp.Diff(tt.want, list(tt.filter)); d != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, d)
		}
	}
	if page, err := s.Sandboxes.ListSandboxes(t.Context(), sandbox.NewWorkspaceID(), sandbox.Filter{}); err != nil || len(page.Items) != 0 {
		t.Errorf("another workspace sees %d sandboxes, %v", len(page.Items), err)
	}
}

func TestListRefuses(t *testing.T) {
	s, ws := openStore(t)
	for _, tt := range []struct {
		filter sandbox.Filter
		field  string
	}{
		{sandbox.Filter{Limit: -1}, "limit"},
		{sandbox.Filter{Limit: 1001}, "limit"},
		{sandbox.Filter{Cursor: "x"}, "cursor"},
		{sandbox.Filter{Cursor: "!!"}, "cursor"},
		{sandbox.Filter{Cursor: "MS54"}, "cursor"}, // 1.x
		{sandbox.Filter{States: []sandbox.State{"x"}}, "state"},
	} {
		_, err := s.Sandboxes.ListSandboxes(t.Context(), ws, tt.filter)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || e.Field != tt.field {
			t.Errorf("ListSandboxes(%+v): %v, want invalid %s", tt.filter, err, tt.field)
		}
	}
}

func TestPurge(t *testing.T) {
	s, ws := openStore(t)
	now := time.Now()
	old := create(t, s, creation(ws, "old"))
	end(t, s, old.ID, now.Add(-time.Hour))
	recent := create(t, s, creation(ws, "recent"))
	end(t, s, recent.ID, now)
	keyed := creation(ws, "live")
	keyed.IdempotencyKey, keyed.KeyLifetime = "k", time.Hour
	create(t, s, keyed)

	if n, err := s.Sandboxes.Purge(t.Context(), now, time.Time{}, 10); n != 0 || err != nil {
		t.Errorf("Purge that keeps sandboxes = %d, %v", n, err)
	}
	if n, err := s.Sandboxes.Purge(t.Context(), now, now.Add(-time.Minute), 10); n != 1 || err != nil {
		t.Errorf("Purge = %d, %v, want 1", n, err)
	}
	if _, err := s.Sandboxes.SandboxByID(t.Context(), old.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the old sandbox after Purge: %v, want code not_found", err)
	}
	if events, err := s.Sandboxes.Events(t.Context(), old.ID, sandbox.EventFilter{}); err != nil || len(events.Items) != 0 {
		t.Errorf("it left %d events, %v", len(events.Items), err)
	}
	again := creation(ws, "other")
	again.IdempotencyKey = "k"
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), again, quota.Admission{}); err != nil || rec.By != sandbox.MatchKey {
		t.Errorf("CreateSandbox with a fresh key = by %q, %v, want by key", rec.By, err)
	}
	if _, err := s.Sandboxes.Purge(t.Context(), now.Add(2*time.Hour), time.Time{}, 10); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Sandboxes.CreateSandbox(t.Context(), again, quota.Admission{}); err != nil || rec.By != sandbox.MatchNone {
		t.Errorf("CreateSandbox with an expired key = by %q, %v, want a new one", rec.By, err)
	}
}
