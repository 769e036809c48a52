package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Notes of more sandboxes than a transaction has are all there, but for values that are older than the recorded values.
func TestNotesOfManySandboxes(t *testing.T) {
	const n = 450
	s, ws := openStore(t)
	begin := time.Now().UTC()
	usage, at := map[sandbox.ID]sandbox.Usage{}, map[sandbox.ID]time.Time{}
	for i := range n {
		c := creation(ws, fmt.Sprint("s", i))
		if _, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil {
			t.Fatal(err)
		}
		usage[c.Sandbox.ID] = sandbox.Usage{At: begin.Add(time.Duration(i)), Running: time.Duration(i), CPU: 2, MemoryByteSeconds: 3, SentBytes: 4, ReceivedBytes: 5, BoxCPU: 6}
		at[c.Sandbox.ID] = begin.Add(time.Hour + time.Duration(i))
	}
	note := func() {
		t.Helper()
		if err := s.Usage.NoteUsage(t.Context(), usage); err != nil {
			t.Fatal(err)
		}
		if err := s.Usage.NoteActivity(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(usage map[sandbox.ID]sandbox.Usage, at map[sandbox.ID]time.Time) {
		t.Helper()
		for id, want := range usage {
			got, err := s.Usage.Usage(t.Context(), id)
			sb, err2 := s.Sandboxes.SandboxByID(t.Context(), id)
			if err != nil || err2 != nil || got != want || !sb.LastActivityAt.Equal(at[id]) {
				t.Fatalf("usage %+v, last activity %v, %v, %v; want %+v and %v", got, sb.LastActivityAt, err, err2, want, at[id])
			}
		}
	}
	note()
	check(usage, at)
	newest, last := usage, at
	usage, at = map[sandbox.ID]sandbox.Usage{}, map[sandbox.ID]time.Time{sandbox.NewID(): begin}
	for id := range newest {
		usage[id] = sandbox.Usage{At: begin.Add(-time.Hour)}
		at[id] = begin
	}
	note()
	check(newest, last)
	states, err := s.Sandboxes.LiveStates(t.Context())
	if err != nil || len(states) != n {
		t.Fatalf("%d states, %v, want %d", len(states), err, n)
	}
	for id := range newest {
		if states[id] != sandbox.Provisioning {
			t.Errorf("state of %s = %q", id, states[id])
		}
		end(t, s, id, time.Now())
		break
	}
	if states, err = s.Sandboxes.LiveStates(t.Context()); err != nil || len(states) != n-1 {
		t.Errorf("%d states after an end, %v, want %d", len(states), err, n-1)
	}
}
