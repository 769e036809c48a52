package crash_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestKillInTheMiddleOfStarts kills the server while sandboxes are being started, and each second server while it starts them again. The same creates again
// return the same sandboxes, all run with what was asked for, and nothing else is there.
func TestKillInTheMiddleOfStarts(t *testing.T) {
	const each = 6
	s := testserver.StartSmall(t, "--pool-size", "0")
	begunAgain := 0
	for round, moment := range []func() bool{
		func() bool { return len(sandboxes(t, s, client.Provisioning)) > 0 },
		func() bool { return len(s.BoxProcesses()) > 0 },
		func() bool { return len(sandboxes(t, s, client.Running)) > 0 },
		func() bool { return len(s.BoxProcesses()) >= each-1 },
	} {
		create := func(ctx context.Context, n int) (*client.Sandbox, error) {
			name := fmt.Sprintf("r%d-%d", round, n)
			return s.Sandboxes.Create(ctx, client.CreateOptions{
				Name: name, IdempotencyKey: name, Image: "modbox/base", Env: map[string]string{"TOKEN": "secret-" + name}, WaitUpTo: 5 * time.Minute,
				Network: client.Network{Enabled: true, AllowOut: []string{"198.51.100.7"}}, Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"},
			})
		}
		var wg sync.WaitGroup
		for n := range each {
			wg.Go(func() { _, _ = create(t.Context(), n) }) // the server is killed under it
		}
		until(t, "the moment of the crash", moment)
		s.Kill()
		wg.Wait()
		s.Launch()
		if round%2 == 1 {
			s.Kill()
			s.Launch()
		}
		var ids []string
		for n := range each {
			sb, err := create(t.Context(), n)
			if err != nil || sb.State != client.Running {
				t.Fatalf("round %d: create %d again: %+v, %v, want that it runs", round, n, sb, err)
			}
			ids = append(ids, sb.ID)
			out := s.Bash(sb.ID, "echo $TOKEN", time.Minute)
			if want := fmt.Sprintf("secret-r%d-%d\n", round, n); string(out.Stdout) != want {
				t.Errorf("round %d: the variable of sandbox %d: %q, want %q", round, n, out.Stdout, want)
			}
			if len(sb.Network.AllowOut) != 1 || !sb.Network.Enabled {
				t.Errorf("round %d: the network of sandbox %d: %+v", round, n, sb.Network)
			}
			if wasStartedAgain(t, s, sb.ID) {
				begunAgain++
			}
		}
		slices.Sort(ids)
		if all := sandboxes(t, s, client.Running); !slices.Equal(all, ids) {
			t.Errorf("round %d: sandboxes %v run, want %v", round, all, ids)
		}
		for _, id := range ids {
			if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		until(t, "boxes to be removed", func() bool { return len(s.Leftovers()) == 0 })
	}
	t.Logf("%d starts were begun again", begunAgain)
	if begunAgain == 0 {
		t.Error("no kill hit a start")
	}
}

// sandboxes returns the ids of the sandboxes in a state, in order.
func sandboxes(t *testing.T, s *testserver.Server, state client.State) (ids []string) {
	t.Helper()
	for sb, err := range s.Sandboxes.List(client.ListOptions{States: []client.State{state}}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.ID)
	}
	slices.Sort(ids)
	return ids
}

// wasStartedAgain reports whether a sandbox was recovered before it first ran.
func wasStartedAgain(t *testing.T, s *testserver.Server, id string) bool {
	t.Helper()
	events, err := s.Sandboxes.Events(id, client.EventsOptions{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := func(kind string) int {
		return slices.IndexFunc(events, func(e client.Event) bool { return e.Type == kind })
	}
	recovered := first("recovered")
	return recovered >= 0 && recovered < first("running")
}
