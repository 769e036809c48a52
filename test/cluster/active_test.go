package cluster_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestActiveServers installs the chart with two servers that are active at the same time, a standby, and a worker for each active server.
func TestActiveServers(t *testing.T) {
	s := installServers(t, "active", os.Getenv("MODBOX_TEST_CHART_ACTIVE"), 3)
	removeWorkersFirst(t, s.namespace)
	s.divided(t, func(ids []string) {
		until(t, "both workers have their sandboxes", func() bool { // the numbers of another server's worker are some seconds old
			list := s.twoWorkers(t)
			return list[0].Sandboxes > 0 && list[1].Sandboxes > 0 && list[0].Sandboxes+list[1].Sandboxes == len(ids)
		})
	})
}

// TestActiveServersWithPods is TestActiveServers with a Pod for each sandbox: each server has the Pods of its part.
func TestActiveServersWithPods(t *testing.T) {
	s := installServers(t, "activepods", os.Getenv("MODBOX_TEST_CHART_ACTIVEPODS"), 3)
	removeWorkersFirst(t, s.namespace)
	permitDisks(t)
	var before []string
	s.divided(t, func(ids []string) {
		now := s.pods(t, ".metadata.labels.modbox/sandbox}={.metadata.labels.modbox/range")
		var want []string
		for _, id := range ids {
			want = append(want, id+"="+strconv.Itoa(sandbox.ID(id).Shard().Range()))
		}
		slices.Sort(want)
		names := s.pods(t, ".metadata.name")
		if before == nil {
			before = names
		}
		if !slices.Equal(now, want) || !slices.Equal(names, before) {
			t.Errorf("the Pods are %v, %v, want %v, %v", names, now, before, want)
		}
	})
	until(t, "no Pod of a sandbox", func() bool { return len(s.pods(t, ".metadata.name")) == 0 })
}

// twoWorkers waits until both workers are connected, and returns them.
func (s standbys) twoWorkers(t *testing.T) (list []client.Worker) {
	t.Helper()
	until(t, "two workers are connected", func() bool {
		var err error
		list, err = s.Workers.List().Collect(t.Context())
		return err == nil && len(list) == 2 && list[0].State == "connected" && list[1].State == "connected"
	})
	return list
}

// shardRanges returns the digits of the ranges of the server in the Pod with an address; "" if it is a standby or does not answer.
func shardRanges(ip string) string {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get("http://" + net.JoinHostPort(ip, "7070") + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct {
		Role        string
		ShardRanges string `json:"shard_ranges"`
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil || answer.Role != "active" {
		return ""
	}
	return answer.ShardRanges
}

// owners waits until each part has a server, and returns their Pods by their ranges.
func (s standbys) owners(t *testing.T) map[string]string {
	t.Helper()
	owners := map[string]string{}
	until(t, "each part has a server", func() bool {
		clear(owners)
		servers := s.servers(t)
		for pod, ip := range servers {
			if digits := shardRanges(ip); digits != "" {
				owners[digits] = pod
			}
		}
		return len(servers) == s.replicas && len(owners) == 2
	})
	return owners
}

// divided makes sandboxes of both parts, kills the server of each part and updates all servers: the sandboxes go on. check checks them.
func (s standbys) divided(t *testing.T, check func(ids []string)) {
	bash := func(id, script string) string {
		t.Helper()
		var out *client.ExecResult
		var err error
		until(t, "the Service leads to a server that runs", func() bool { // it also leads to a Pod whose server was killed, for a moment
			out, err = s.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", script}, Timeout: time.Minute})
			return err == nil || !strings.Contains(err.Error(), "connection refused")
		})
		if err != nil {
			t.Errorf("sandbox %s: %v", id, err)
			return ""
		}
		return strings.TrimSpace(string(out.Stdout))
	}
	s.twoWorkers(t)
	parts := sandbox.Parts(2)
	of := map[sandbox.Ranges][]string{}
	var ids []string
	servers, owners := s.servers(t), s.owners(t)
	for _, part := range parts { // a client keeps its connection to one of the servers of the Service
		c, err := client.New("http://"+net.JoinHostPort(servers[owners[part.Digits()]], "7070"), s.token)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi"}})
			if err != nil {
				t.Fatal(err)
			}
			if !part.Has(sandbox.ID(sb.ID)) {
				t.Errorf("the server of %s has made %s", part.Digits(), sb.ID)
			}
			bash(sb.ID, counter)
			ids, of[part] = append(ids, sb.ID), append(of[part], sb.ID)
		}
	}
	n := 0
	count := func(ids []string, want int) {
		t.Helper()
		for _, id := range ids {
			if got := bash(id, increment); got != fmt.Sprint(want) {
				t.Errorf("the counter of %s is %q, want %d", id, got, want)
			}
		}
	}
	n++
	count(ids, n)
	check(ids)
	for _, part := range parts {
		pod := s.owners(t)[part.Digits()]
		began := time.Now()
		killServer(t, pod)
		s.in(t, "delete", "pod", pod, "--force", "--grace-period", "0")
		n++
		for _, other := range parts {
			if other != part { // they do not wait for the other server
				count(of[other], n)
			}
		}
		count(of[part], n)
		t.Logf("after the end of the server of %s all its sandboxes answered within %v", part.Digits(), time.Since(began))
		s.owners(t)
		check(ids)
	}
	began := time.Now()
	s.in(t, "rollout", "restart", "deployment/modbox")
	s.in(t, "rollout", "status", "--timeout", timeLimit.String(), "deployment/modbox")
	s.owners(t)
	n++
	count(ids, n)
	t.Logf("an update took %v", time.Since(began))
	check(ids)
	for _, id := range ids {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
