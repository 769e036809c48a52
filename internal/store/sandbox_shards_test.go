package store_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestCreateInTheShardOfAnother creates a sandbox and a fork with ids of another owner's shard.
func TestCreateInTheShardOfAnother(t *testing.T) {
	s, ws := openStore(t)
	own := s.Sandboxes.Owned(sandbox.Own(sandbox.RangesFrom(0, 7)))
	other := creation(ws, "other")
	other.Sandbox.ID = other.Sandbox.ID[:34] + "80"
	if rec, err := own.CreateSandbox(t.Context(), other, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("CreateSandbox = %+v, %v, want code unavailable", rec, err)
	}
	if recs, err := own.CreateForks(t.Context(), []sandbox.Creation{other}, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("CreateForks = %+v, %v, want code unavailable", recs, err)
	}
	if states, err := s.Sandboxes.LiveStates(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("there are %v, %v", states, err)
	}
	other.Sandbox.ID = other.Sandbox.ID[:34] + "7f"
	if _, err := own.CreateSandbox(t.Context(), other, quota.Admission{}); err != nil {
		t.Error(err)
	}
}

// TestWritesOfASandboxOfAnother writes to a sandbox whose shard its server has given up.
func TestWritesOfASandboxOfAnother(t *testing.T) {
	s, ws := openStore(t)
	owner := sandbox.Own(sandbox.AllRanges)
	own := s.Sandboxes.Owned(owner)
	c := creation(ws, "given up")
	c.Sandbox.ID = c.Sandbox.ID[:34] + "80"
	sb := create(t, s, c)
	owner.Set(sandbox.RangesFrom(0, 7))
	ctx, ev := t.Context(), sandbox.Event{Sandbox: sb.ID, Time: time.Now(), Type: sandbox.EventRunning}
	replaced := creation(ws, "given up")
	replaced.Sandbox.ID = replaced.Sandbox.ID[:34] + "00"
	replaced.Replaces = &sandbox.Ending{Cause: sandbox.Cause{Code: sandbox.CauseDestroyed}, Event: ev}
	for what, write := range map[string]func() error{
		"Transition": func() error {
			_, err := own.Transition(ctx, sb.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{}, ev)
			return err
		},
		"ResumeSandbox": func() error {
			_, err := own.ResumeSandbox(ctx, sb.ID, sandbox.Change{}, ev, quota.Admission{})
			return err
		},
		"SetBox": func() error {
			_, err := own.SetBox(ctx, sb.ID, "digest", []byte("handle"))
			return err
		},
		"ChangeSandbox": func() error {
			_, err := own.ChangeSandbox(ctx, sb.ID, sandbox.Change{}, ev)
			return err
		},
		"AppendEvent": func() error { return own.AppendEvent(ctx, ev) },
		"SetEnv":      func() error { return own.SetEnv(ctx, sb.ID, map[string]string{"A": "b"}) },
		"Archive": func() error {
			_, err := own.Archive(ctx, sb.ID, sandbox.NewCheckpointID(), 1, ev, quota.Admission{})
			return err
		},
		"Copied": func() error {
			return own.Copied(ctx, sb.ID, sandbox.NewCheckpointID(), 1, time.Now(), quota.Admission{})
		},
		"a create in its place": func() error {
			_, err := own.CreateSandbox(ctx, replaced, quota.Admission{})
			return err
		},
	} {
		if err := write(); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: %v, want code unavailable", what, err)
		}
	}
	now, err := own.SandboxByID(ctx, sb.ID)
	events, err2 := own.Events(ctx, sb.ID, sandbox.EventFilter{})
	if err != nil || err2 != nil || !now.UpdatedAt.Equal(sb.UpdatedAt) || now.State != sandbox.Provisioning || len(events.Items) != 1 {
		t.Errorf("the sandbox is %+v with %d events, %v, %v", now, len(events.Items), err, err2)
	}
	owner.Set(sandbox.AllRanges)
	if _, err := own.Transition(ctx, sb.ID, sandbox.Provisioning, sandbox.Running, sandbox.Change{}, ev); err != nil {
		t.Error(err)
	}
}

// TestOwnersOfShards divides the sandboxes between three owners: each sandbox is of one of them.
func TestOwnersOfShards(t *testing.T) {
	s, ws := openStore(t)
	now := time.Now()
	byShard := map[string]sandbox.ID{} // the sandboxes that are live
	for _, state := range []string{"live", "ended"} {
		for _, shard := range []string{"00", "3f", "40", "9a", "a9", "aa", "ff"} {
			c := creation(ws, state+shard)
			c.Sandbox.ID = c.Sandbox.ID[:34] + sandbox.ID(shard)
			c.IdempotencyKey, c.KeyLifetime = state+shard, time.Hour
			sb := create(t, s, c)
			if state == "ended" {
				end(t, s, sb.ID, now.Add(-time.Hour))
			} else {
				byShard[shard] = sb.ID
			}
		}
	}
	for _, owner := range []struct {
		ranges sandbox.Ranges
		want   []string
	}{
		{sandbox.RangesFrom(4, 4) | sandbox.RangesFrom(9, 10), []string{"40", "9a", "a9", "aa"}},
		{sandbox.RangesFrom(11, 15), []string{"ff"}},
		{sandbox.RangesFrom(0, 3), []string{"00", "3f"}},
		{sandbox.AllRanges, []string{"00", "3f", "40", "9a", "a9", "aa", "ff"}},
	} {
		t.Run(owner.ranges.Digits(), func(t *testing.T) {
			own := s.Sandboxes.Owned(sandbox.Own(owner.ranges))
			rows, err := own.LiveSandboxes(t.Context())
			states, err2 := own.LiveStates(t.Context())
			if err != nil || err2 != nil || len(rows) != len(owner.want) || len(states) != len(owner.want) {
				t.Errorf("it has %d live sandboxes and %d states, %v, %v; want %d", len(rows), len(states), err, err2, len(owner.want))
			}
			for _, shard := range owner.want {
				if id := byShard[shard]; states[id] == "" || !own.Owns(id) {
					t.Errorf("sandbox %s is not one of its own", id)
				}
			}
			want := int64(len(owner.want))
			if owner.ranges == sandbox.AllRanges {
				want = 0 // the others have purged all
			}
			if n, err := own.Purge(t.Context(), now.Add(2*time.Hour), now, 10); err != nil || n != want {
				t.Errorf("it purges %d sandboxes, %v, want %d", n, err, want)
			}
			var keys int
			if err := s.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM idempotency_keys").Scan(&keys); err != nil || (keys > 0) != (owner.ranges.First() > 0) {
				t.Errorf("%d expired idempotency keys are left, %v", keys, err)
			}
		})
	}
}
