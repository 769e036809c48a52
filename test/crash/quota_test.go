package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestKillBetweenPlaceAndLife kills the server at random moments of forks, of
// creates that replace and of resumes, at a quota that is full most of the time.
// After each restart no place is held by anything that does not live.
func TestKillBetweenPlaceAndLife(t *testing.T) {
	const most, rounds = 4, 3
	s := testserver.StartSmall(t, "--quota-sandboxes", fmt.Sprint(most))
	small := client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}
	create := func(ctx context.Context, name string, replace bool, wait time.Duration) error {
		_, err := s.Sandboxes.Create(ctx, client.CreateOptions{
			Name: name, Image: "modbox/base", Resources: small, Replace: replace, WaitForQuota: wait, WaitUpTo: 5 * time.Minute,
		})
		return err
	}
	for _, name := range []string{"parent", "asleep"} {
		if err := create(t.Context(), name, false, 0); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var g sync.WaitGroup
		for _, do := range []func() error{ // errors are not judged: the server is killed under it
			func() error { return create(ctx, "replaced", true, 0) },
			func() error { return create(ctx, "waited", true, 10*time.Second) },
			func() error {
				children, err := s.Sandboxes.Fork(ctx, "parent", client.ForkOptions{Count: 2, WaitForQuota: 10 * time.Second})
				for _, c := range children {
					if c.Sandbox != nil {
						_, _ = s.Sandboxes.Delete(ctx, c.Sandbox.ID)
					}
				}
				return err
			},
			func() error {
				_, _ = s.Sandboxes.Pause(ctx, "asleep")
				_, err := s.Sandboxes.Resume(ctx, "asleep", client.ResumeOptions{WaitForQuota: 10 * time.Second})
				return err
			},
		} {
			g.Go(func() {
				for ctx.Err() == nil {
					_ = do()
				}
			})
		}
		// The moment is random on purpose: between any two steps of any of the calls.
		<-time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		g.Wait()
		s.Launch()
		wantOnlyLiving(t, s, round)
		// The places are there for others.
		for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if sb.Name != "parent" && sb.Name != "asleep" {
				if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
					t.Errorf("round %d: delete %s: %v", round, sb.ID, err)
				}
			}
		}
		if _, err := s.Sandboxes.Resume(t.Context(), "asleep", client.ResumeOptions{}); err != nil {
			t.Errorf("round %d: resume: %v", round, err)
		}
		children, err := s.Sandboxes.Fork(t.Context(), "parent", client.ForkOptions{Count: most - 2})
		if err != nil {
			t.Fatalf("round %d: fork that fills the quota: %v", round, err)
		}
		for _, c := range children {
			if c.Err != nil {
				t.Errorf("round %d: child: %v", round, c.Err)
			} else if _, err := s.Sandboxes.Delete(t.Context(), c.Sandbox.ID); err != nil {
				t.Errorf("round %d: delete child: %v", round, err)
			}
		}
	}
}

// wantOnlyLiving waits until the quota counts exactly the running sandboxes.
func wantOnlyLiving(t *testing.T, s *testserver.Server, round int) {
	t.Helper()
	me, err := s.WhoAmI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // polling another process
		states := map[client.State]int64{}
		for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			states[sb.State]++
		}
		q, err := s.Workspaces.Quota(t.Context(), me.WorkspaceID)
		if err != nil {
			t.Fatal(err)
		}
		running, paused := states[client.Running], states[client.Paused]
		if q.Used.Sandboxes == running && int(running+paused) == sum(states) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("round %d: long after the restart %d places are taken, and there are %v", round, q.Used.Sandboxes, states)
		}
	}
}

func sum(states map[client.State]int64) (n int) {
	for _, count := range states {
		n += int(count)
	}
	return n
}
