package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
)

// perSandbox is an installation whose sandboxes have Pods of their own.
type perSandbox struct {
	*client.Client
	url, token string // of the Service; of an administrator
}

const perSandboxNamespace = "persandbox"

// pods returns a field of the Pods of sandboxes.
func (perSandbox) pods(t *testing.T, field string) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "", "-n", perSandboxNamespace, "get", "pods", "-l", "app.kubernetes.io/component=sandbox", "-o", "jsonpath={range .items[*]}{"+field+"} {end}"))
}

// none waits until there is no Pod of a sandbox.
func (p perSandbox) none(t *testing.T, after string) {
	t.Helper()
	until(t, "no Pod of a sandbox "+after, func() bool { return len(p.pods(t, ".metadata.name")) == 0 })
}

// installPerSandbox installs the chart with a Pod for each sandbox.
func installPerSandbox(t *testing.T) perSandbox {
	t.Helper()
	address(t)
	manifest, err := os.ReadFile(os.Getenv("MODBOX_TEST_CHART_PODS"))
	if err != nil {
		t.Fatalf("the objects of the chart: %v", err)
	}
	permitDisks(t)
	makeNamespace(t, perSandboxNamespace)
	// The rights are for a service account of the namespace for which the chart was rendered.
	apply(t, strings.ReplaceAll(string(manifest), "namespace: modbox\n", "namespace: "+perSandboxNamespace+"\n"), "--namespace", perSandboxNamespace)
	removeWorkersFirst(t, perSandboxNamespace)
	kubectl(t, "", "-n", perSandboxNamespace, "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox")
	dir := serverVolume(t, perSandboxNamespace, "state-modbox-0")
	importImage(t, perSandboxNamespace, "modbox-0", dir, "modbox/base")
	token, err := os.ReadFile(filepath.Join(dir, "state/token"))
	if err != nil {
		t.Fatal(err)
	}
	p := perSandbox{token: strings.TrimSpace(string(token))}
	p.url = "http://" + kubectl(t, "", "-n", perSandboxNamespace, "get", "service", "modbox", "-o", "jsonpath={.spec.clusterIP}")
	if p.Client, err = client.New(p.url, p.token); err != nil {
		t.Fatal(err)
	}
	return p
}

// permitDisks has nodes say that they have disk space: the kubelets here do not look after the disk, so Pods with a disk limit would fit on none.
func permitDisks(t *testing.T) {
	t.Helper()
	for _, node := range strings.Fields(kubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		kubectl(t, "", "patch", "node", node, "--subresource=status", "--type=merge", "-p", `{"status": {"capacity": {"ephemeral-storage": "500Gi"}, "allocatable": {"ephemeral-storage": "500Gi"}}}`)
	}
}

// TestPodPerSandbox installs the chart with a Pod for each sandbox.
func TestPodPerSandbox(t *testing.T) {
	p := installPerSandbox(t)
	t.Run("life", p.life)
	t.Run("copies", p.copies)
	t.Run("drain", p.drain)
	t.Run("evict", p.evict)
	t.Run("preempt", p.preempt)
	t.Run("kubelet", p.kubelet)
	t.Run("doctor", func(t *testing.T) { proveCluster(t, p.url, p.token, "drain", "undrain") })
	t.Run("quota", p.quota)
	t.Run("memory", p.memory)
	t.Run("space", p.space)
	t.Run("image", p.image)
	t.Run("gives", p.gives)
	t.Run("shared", p.shared)
	t.Run("away", p.away)
	t.Run("bench", p.bench)
	t.Run("pool", p.pool)
	t.Run("crash", p.crash)
}

// life follows a sandbox and its Pod.
func (p perSandbox) life(t *testing.T) {
	began := time.Now()
	sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	p.bash(t, sb.ID, "echo first")
	t.Logf("create to first output: %v", time.Since(began))
	count := func(want int) {
		t.Helper()
		p.count(t, sb.ID, want)
	}
	p.bash(t, sb.ID, counter)
	count(1)
	if got := p.pods(t, ".metadata.labels.modbox/sandbox"); len(got) != 1 || got[0] != sb.ID {
		t.Errorf("the Pods are of %v, want %s", got, sb.ID)
	}
	if got := p.pods(t, ".spec.containers[0].resources.limits.memory"); len(got) != 1 || got[0] == "" {
		t.Errorf("the memory limits are %v", got)
	}
	node := p.pods(t, ".spec.nodeName")

	began = time.Now()
	if _, err := p.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	t.Logf("pause: %v", time.Since(began))
	p.none(t, "after a pause")
	kubectl(t, "", "cordon", node[0])
	defer kubectl(t, "", "uncordon", node[0])
	began = time.Now()
	count(2) // resumes it
	t.Logf("resume on the other node to the first output: %v", time.Since(began))
	if got := p.pods(t, ".spec.nodeName"); len(got) != 1 || got[0] == node[0] {
		t.Errorf("the sandbox is on %v, want another node than %v", got, node)
	}

	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pod", "modbox-0", "--grace-period=0", "--force")
	p.rolledOut(t)
	count(3)

	// As the drain of a node.
	left := p.pods(t, ".metadata.name")
	began = time.Now()
	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pod", left[0], "--timeout", timeLimit.String())
	t.Logf("end of a Pod whose sandbox moves: %v", time.Since(began))
	count(4)
	if got := p.pods(t, ".metadata.name"); len(got) != 1 || got[0] == left[0] {
		t.Errorf("the Pods are %v, want another than %v", got, left)
	}
	if _, err := p.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatalf("delete: %v", err)
	}
	p.none(t, "after the end of the sandbox")
}

// copies forks a sandbox with its memory, and makes a sandbox from its snapshot; each has a Pod.
func (p perSandbox) copies(t *testing.T) {
	sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	bash := func(id, script, want string) {
		t.Helper()
		if got := p.bash(t, id, script); got != want {
			t.Errorf("%s in %s = %q, want %q", script, id, got, want)
		}
	}
	bash(sb.ID, "echo kept >/root/file", "")
	bash(sb.ID, counter, "")
	bash(sb.ID, increment, "1")
	forks, err := p.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 2})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	ids := []string{sb.ID}
	for _, f := range forks {
		if f.Err != nil {
			t.Fatalf("fork: %v", f.Err)
		}
		ids = append(ids, f.Sandbox.ID)
	}
	for _, id := range ids {
		bash(id, increment, "2")
	}
	made, err := p.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{})
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	fresh, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: made.ID})
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, fresh.ID)
	bash(fresh.ID, "cat /root/file", "kept")
	got := p.pods(t, ".metadata.labels.modbox/sandbox")
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("the Pods are of the sandboxes %v, want %v", got, ids)
	}
	for _, id := range ids {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	p.none(t, "after the end of the sandboxes")
}

// rolledOut waits until the server has started anew and the Service leads to it, which takes a moment longer.
func (p perSandbox) rolledOut(t *testing.T) {
	t.Helper()
	kubectl(t, "", "-n", perSandboxNamespace, "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox")
	until(t, "the Service leads to the server", func() bool {
		_, err := p.Version(t.Context())
		return err == nil
	})
}

// set starts the server anew with other environment variables: NAME=value, or NAME- to remove it.
func (p perSandbox) set(t *testing.T, variables ...string) {
	t.Helper()
	kubectl(t, "", append([]string{"-n", perSandboxNamespace, "set", "env", "statefulset/modbox"}, variables...)...)
	p.rolledOut(t)
}

// crash kills the server in the middle of creates, and checks that no Pod remains but the Pods of sandboxes that exist.
func (p perSandbox) crash(t *testing.T) {
	const creates = 3
	for round := range 3 {
		var all sync.WaitGroup
		for range creates {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), callTime)
				defer cancel()
				_, err := p.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "100m"}})
				t.Logf("create in round %d: %v", round, err)
			})
		}
		switch round {
		case 0:
			until(t, "a Pod is made", func() bool { return len(p.pods(t, ".metadata.name")) > 0 })
		case 1:
			until(t, "a Pod runs", func() bool { return slices.Contains(p.pods(t, ".status.phase"), "Running") })
		default:
			until(t, "a worker is recorded", func() bool { return len(p.workers(t)) > 1 })
		}
		p.kill(t)
		all.Wait()
		// Its container is started again later and later.
		kubectl(t, "", "-n", perSandboxNamespace, "delete", "pod", "modbox-0", "--grace-period=0", "--force")
		p.rolledOut(t)
		until(t, "every sandbox that exists can be destroyed", func() bool {
			left := 0
			for sb, err := range p.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
				if err != nil {
					return false // the server starts
				}
				left++
				if _, err := p.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
					t.Logf("delete: %v", err)
				}
			}
			return left == 0
		})
		p.none(t, "after a crash")
		until(t, "only the worker that runs no sandboxes is recorded", func() bool { return len(p.workers(t)) == 1 })
	}
}

// workers returns the workers that the server knows.
func (p perSandbox) workers(t *testing.T) (names []string) {
	t.Helper()
	for w, err := range p.Workers.List().All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, w.Name)
	}
	return names
}

// kill kills the server with SIGKILL.
func (perSandbox) kill(t *testing.T) {
	t.Helper()
	uid := kubectl(t, "", "-n", perSandboxNamespace, "get", "pod", "modbox-0", "-o", "jsonpath={.metadata.uid}")
	for _, dir := range processes("server", "--config") {
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(groups), uid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no server runs in the Pod %s", uid)
}
