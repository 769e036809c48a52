package cluster_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// sharing is the number of sandboxes, and so of waiting creates, that one Pod has space for.
const sharing = 4

// crash kills the active server in the middle of creates that share a Pod and came through the standby, and in half of the rounds also the standby, which holds them then.
// The same creates again give the same sandboxes, which all run, and nothing else is there.
func (s standbys) crash(t *testing.T) {
	s.in(t, "set", "env", "deployment/modbox", fmt.Sprintf("MODBOX_KUBERNETES_SANDBOXES_PER_POD=%d", sharing))
	s.in(t, "rollout", "status", "--timeout", timeLimit.String(), "deployment/modbox")
	until(t, "there are two servers", func() bool { return len(s.servers(t)) == 2 })
	for _, both := range []bool{false, true} {
		for name, moment := range map[string]func() bool{
			"made":    func() bool { return len(s.pods(t, ".metadata.name")) > 0 },
			"runs":    func() bool { return slices.Contains(s.pods(t, ".status.phase"), "Running") },
			"workers": func() bool { return len(s.workers(t)) > 1 },
		} {
			t.Run(fmt.Sprintf("%s both=%v", name, both), func(t *testing.T) { s.crashAt(t, moment, both) })
		}
	}
}

// crashAt kills servers at a moment of creates.
func (s standbys) crashAt(t *testing.T, moment func() bool, both bool) {
	active := s.active(t)
	var standby string
	var through *client.Client
	for name, ip := range s.servers(t) {
		if name != active {
			standby = name
			var err error
			if through, err = client.New("http://"+net.JoinHostPort(ip, "7070"), s.token); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func(ctx context.Context, c *client.Client, n int) (*client.Sandbox, error) {
		return c.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", IdempotencyKey: fmt.Sprintf("%s-%d", t.Name(), n)})
	}
	var made [sharing]*client.Sandbox
	var creates sync.WaitGroup
	for n := range made {
		creates.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			defer cancel()
			sb, err := create(ctx, through, n)
			if err != nil {
				t.Logf("create %d: %v", n, err)
				return
			}
			made[n] = sb
		})
	}
	until(t, "the moment of the crash has come", moment)
	killServer(t, active)
	if both {
		killServer(t, standby)
	}
	creates.Wait()
	s.in(t, "delete", "pod", active, standby, "--force", "--grace-period", "0") // else their containers are started again later and later
	var ids []string
	for n := range made {
		var sb *client.Sandbox
		until(t, "a server answers the same create", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			defer cancel()
			var err error
			sb, err = create(ctx, s.Client, n)
			return err == nil
		})
		if made[n] != nil && made[n].ID != sb.ID {
			t.Errorf("create %d made sandbox %s, and the same create again %s", n, made[n].ID, sb.ID)
		}
		ids = append(ids, sb.ID)
	}
	for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, sb.ID) {
			t.Errorf("there is a sandbox that no create has made: %+v", sb)
		}
	}
	for _, id := range ids {
		sb, err := s.Sandboxes.Wait(t.Context(), id, client.Running)
		if err != nil {
			t.Fatal(err)
		}
		if sb.State != client.Running {
			t.Errorf("a sandbox is %s: %+v, want that its start begins again", sb.State, sb.Cause)
			continue
		}
		if out, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/echo", id}, Timeout: time.Minute}); err != nil || strings.TrimSpace(string(out.Stdout)) != id {
			t.Errorf("a command in sandbox %s: %+v, %v", id, out, err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	until(t, "no Pod of a sandbox", func() bool { return len(s.pods(t, ".metadata.name")) == 0 })
	until(t, "only the worker that runs no sandboxes is recorded", func() bool { return len(s.workers(t)) == 1 })
}

// servers returns the addresses of the Pods of servers, by their names.
func (s standbys) servers(t *testing.T) map[string]string {
	t.Helper()
	ips := map[string]string{}
	for _, entry := range strings.Fields(s.in(t, "get", "pods", "-l", "app.kubernetes.io/component=server", "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.podIP} {end}")) {
		name, ip, _ := strings.Cut(entry, "=")
		ips[name] = ip
	}
	return ips
}

// pods returns a field of the Pods of sandboxes.
func (s standbys) pods(t *testing.T, field string) []string {
	t.Helper()
	list := strings.Fields(s.in(t, "get", "pods", "-l", "app.kubernetes.io/component=sandbox", "-o", "jsonpath={range .items[*]}{"+field+"} {end}"))
	slices.Sort(list)
	return list
}

// workers returns the workers that the active server knows; none while it does not answer.
func (s standbys) workers(t *testing.T) (names []string) {
	t.Helper()
	for w, err := range s.Workers.List().All(t.Context()) {
		if err != nil {
			return nil
		}
		names = append(names, w.Name)
	}
	return names
}
