package crash_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// ledger has what the storm's callers know for sure.
type ledger struct {
	mu      sync.Mutex
	running map[string]string // id to its marker: answered as running, destroy never asked for
	doomed  map[string]bool   // destroy was asked for, whatever came of it
}

func (l *ledger) live(id, marker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[id] = marker
}

func (l *ledger) doom(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, id)
	l.doomed[id] = true
}

func (l *ledger) pick() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.running {
		return id, true
	}
	return "", false
}

// storm creates, uses and destroys sandboxes until ctx ends. Errors are not
// judged: the server is killed under it.
func storm(ctx context.Context, s *client.Client, l *ledger, worker int) {
	small := client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}
	for n := 0; ctx.Err() == nil; n++ {
		marker := fmt.Sprintf("w%d-%d-%d", worker, n, rand.Uint32())
		sb, err := s.Sandboxes.Create(ctx, client.CreateOptions{
			Name: marker, Image: "modbox/base", Resources: small, TTL: 10 * time.Minute, WaitUpTo: 5 * time.Minute,
		})
		if err != nil || sb.State != client.Running {
			continue
		}
		res, err := s.Sandboxes.Exec(ctx, sb.ID, client.Command{Shell: "echo " + marker + " > /marker", User: "root"})
		if err != nil || res.ExitCode != 0 {
			l.doom(sb.ID)
			continue
		}
		l.live(sb.ID, marker)
		if n%2 == 1 {
			if id, ok := l.pick(); ok {
				l.doom(id)
				_, _ = s.Sandboxes.Delete(ctx, id)
			}
		}
	}
}

func TestKillInTheMiddleOfAStorm(t *testing.T) {
	s := testserver.StartSmall(t, "--pool-size", "2")
	l := &ledger{running: map[string]string{}, doomed: map[string]bool{}}
	const rounds, workers = 6, 3
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() { storm(ctx, s.Client, l, round*workers+w) })
		}
		// The moment is random on purpose: between any two steps of any of the calls.
		<-time.After(time.Duration(300+rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		wg.Wait()
		s.Launch()
		verify(t, s, l, round)
	}
}

// verify asserts that every sandbox that a caller knows as running still runs with its data, and
// that every other sandbox reaches an end or can be used.
func verify(t *testing.T, s *testserver.Server, l *ledger, round int) {
	t.Helper()
	for id, marker := range l.running {
		res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"cat", "/marker"}})
		if err != nil || string(res.Stdout) != marker+"\n" {
			sb, _ := s.Sandboxes.Get(t.Context(), id)
			t.Errorf("round %d: sandbox %s was running: cat /marker = %+v, %v; sandbox %+v", round, id, res, err, sb)
		}
	}
	for id := range l.doomed {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Errorf("round %d: delete %s: %v", round, id, err)
		}
	}
	clear(l.doomed)
	// A sandbox that no caller knows (its answer was lost) must not stay in between.
	deadline := time.Now().Add(5 * time.Minute)
	for {
		busy := inBetween(t, s)
		if len(busy) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("round %d: long after the restart these are neither running nor ended: %v", round, busy)
		}
		time.Sleep(100 * time.Millisecond) // polling another process
	}
}

func inBetween(t *testing.T, s *testserver.Server) []string {
	t.Helper()
	busy := map[string]client.State{}
	for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if sb.State != client.Running {
			busy[sb.ID] = sb.State
		}
	}
	return slices.Sorted(maps.Keys(busy))
}

func TestRunningCommandSurvivesARestartOfTheServer(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	s.Bash(sb.ID, `setsid nohup bash -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n.new; mv /tmp/n.new /tmp/n; sleep 0.1; done' >/dev/null 2>&1 &`, time.Minute)
	s.Kill()
	s.Launch()
	res := s.Bash(sb.ID, `until [ -s /tmp/n ]; do sleep 0.05; done; first=$(cat /tmp/n); until [ "$(cat /tmp/n)" -gt "$first" ]; do sleep 0.05; done; echo counts`, time.Minute)
	if string(res.Stdout) != "counts\n" {
		t.Errorf("the counter stands still after the restart: %+v", res)
	}
	events, err := s.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(e client.Event) bool { return e.Type == "recovered" }) {
		t.Errorf("events after the restart: %+v, want one of type recovered", events)
	}
}

func TestDeadlineSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel() // it waits for a minute
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", TTL: time.Minute})
	s.Kill()
	s.Launch()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	got, err := s.Sandboxes.Wait(ctx, sb.ID, client.Destroyed)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != client.Destroyed || got.Cause == nil || got.Cause.Code != "ttl" {
		t.Fatalf("after its deadline: state %s, cause %+v, want destroyed with cause ttl", got.State, got.Cause)
	}
	if late := got.EndedAt.Sub(*sb.Deadline); late < 0 {
		t.Errorf("ended %v before its deadline", -late)
	}
}

func TestBoxKilledWhileTheServerIsDown(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	s.Kill()
	s.KillBoxes()
	s.Launch()
	got, err := s.Sandboxes.Wait(t.Context(), sb.ID, client.Failed)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != client.Failed || got.Cause == nil || got.Cause.Code != "host_restart" {
		t.Errorf("box killed while the server was down: state %s, cause %+v, want failed with cause host_restart", got.State, got.Cause)
	}
}
