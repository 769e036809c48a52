package cluster_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
)

// counting makes a sandbox that counts on a node, and returns its id.
func (p perSandbox) counting(t *testing.T, node string, o client.CreateOptions) string {
	t.Helper()
	defer only(t, node)()
	id := p.started(t, o)
	if got := p.node(t, id); got != node {
		t.Fatalf("the sandbox is on %q, want %s", got, node)
	}
	return id
}

// only keeps new Pods on a node, or on none if it is "", until the function that it returns is called.
func only(t *testing.T, node string) (all func()) {
	t.Helper()
	var others []string
	for _, name := range strings.Fields(kubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		if name != node {
			others = append(others, name)
		}
	}
	kubectl(t, "", append([]string{"cordon"}, others...)...)
	return func() { kubectl(t, "", append([]string{"uncordon"}, others...)...) }
}

// bash runs a script in a sandbox and returns its output.
func (p perSandbox) bash(t *testing.T, id, script string) string {
	t.Helper()
	out, err := p.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", script}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// count adds 1 to the number that a sandbox remembers, and checks it.
func (p perSandbox) count(t *testing.T, id string, want int) {
	t.Helper()
	if got := p.bash(t, id, increment); got != fmt.Sprint(want) {
		t.Errorf("the counter of sandbox %s is %q, want %d", id, got, want)
	}
}

// node returns the node of the Pod of a sandbox; "" if there is none.
func (perSandbox) node(t *testing.T, id string) string {
	t.Helper()
	return kubectl(t, "", "-n", perSandboxNamespace, "get", "pods", "-l", "modbox/sandbox="+id, "-o", "jsonpath={.items[*].spec.nodeName}")
}

// ended waits until a sandbox has ended because of its Pod.
func (p perSandbox) ended(t *testing.T, id string) {
	t.Helper()
	sb, err := p.Sandboxes.Wait(t.Context(), id, client.Destroyed)
	if err != nil || !sb.State.Ended() || sb.Cause == nil || sb.Cause.Code != "worker_lost" || !strings.Contains(sb.Cause.Message, "Pod") {
		t.Fatalf("the sandbox is %+v, %v, want that it has ended because of its Pod", sb, err)
	}
	t.Logf("the sandbox has ended: %+v", sb.Cause)
}

// destroy destroys sandboxes, and checks that neither Pods nor workers of sandboxes remain.
func (p perSandbox) destroy(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	p.none(t, "after the end of the sandboxes")
	until(t, "only the worker that runs no sandboxes is recorded", func() bool { return len(p.workers(t)) == 1 })
}

// drain drains nodes with kubectl.
func (p perSandbox) drain(t *testing.T) {
	evict := func(node string, options ...string) {
		t.Helper()
		began := time.Now()
		kubectl(t, "", append([]string{"drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", timeLimit.String()}, options...)...)
		t.Logf("drain %s %v: %v", node, options, time.Since(began))
	}
	server := kubectl(t, "", "-n", perSandboxNamespace, "get", "pod", "modbox-0", "-o", "jsonpath={.spec.nodeName}")
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[server]
	sandboxes := []string{"--pod-selector", "app.kubernetes.io/component=sandbox"} // the server stays
	defer kubectl(t, "", "uncordon", server, other)

	id := p.counting(t, other, client.CreateOptions{})
	evict(other)
	p.count(t, id, 2)
	if got := p.node(t, id); got != server {
		t.Errorf("the sandbox is on %q after the drain of %s", got, other)
	}
	kubectl(t, "", "-n", perSandboxNamespace, "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox-worker")

	// No other node may have the sandbox: it is paused until one may.
	evict(server, sandboxes...)
	if left := p.node(t, id); left != "" {
		t.Errorf("the sandbox is on %q after all nodes were drained", left)
	}
	kubectl(t, "", "uncordon", server, other)
	p.count(t, id, 3)

	// No time to save it.
	evict(p.node(t, id), append(sandboxes, "--grace-period", "0")...)
	p.ended(t, id)
	p.destroy(t)
}

// outOfService has Kubernetes give up the Pods of a node at once; else it does so after minutes. An administrator says with it that the node does not come back.
const outOfService = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

// TestPodsOfLostNode loses a node that has Pods of sandboxes. The cluster has one node less for the tests that follow.
func TestPodsOfLostNode(t *testing.T) {
	address(t)
	all := only(t, "node-1") // for the server. Through this node the test reaches Services, too
	p := installPerSandbox(t)
	all()
	unknown := func() {
		t.Helper()
		kubectl(t, "", "wait", "--for=condition=Ready=Unknown", "--timeout", timeLimit.String(), "node/node-2")
	}
	signal := func(pid string, s unix.Signal) {
		t.Helper()
		n, err := strconv.Atoi(pid)
		if err == nil {
			err = unix.Kill(n, s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	silent := t.Run("silent", func(t *testing.T) { // the kubelet is silent, and the processes of the sandbox go on
		id := p.counting(t, "node-2", client.CreateOptions{})
		_, pid, _ := strings.Cut(process("kubelet", "--hostname-override=node-2"), "/proc/")
		signal(pid, unix.SIGSTOP)
		goOn := sync.OnceFunc(func() { signal(pid, unix.SIGCONT) })
		defer goOn()
		unknown()
		p.count(t, id, 2)
		kubectl(t, "", "taint", "node", "node-2", outOfService)
		p.ended(t, id)
		p.none(t, "of a node that is out of service")
		goOn()
		kubectl(t, "", "taint", "node", "node-2", outOfService+"-")
		kubectl(t, "", "wait", "--for=condition=Ready", "--timeout", timeLimit.String(), "node/node-2")
		until(t, "the node has ended the processes of the sandbox", func() bool { return len(processes("worker", "--config=/etc/modbox/config/modbox.yaml")) == 1 })
		p.destroy(t)
	})
	if !silent {
		return // the node may be out of service
	}
	t.Run("killed", func(t *testing.T) {
		back := p.counting(t, "node-2", client.CreateOptions{CheckpointInterval: time.Minute})
		lost := p.counting(t, "node-2", client.CreateOptions{})
		paused := p.counting(t, "node-2", client.CreateOptions{})
		elsewhere := p.counting(t, "node-1", client.CreateOptions{})
		if _, err := p.Sandboxes.Pause(t.Context(), paused); err != nil {
			t.Fatal(err)
		}
		until(t, "there is an automatic checkpoint", func() bool {
			sb, err := p.Sandboxes.Get(t.Context(), back)
			return err == nil && sb.LastCheckpointAt != nil
		})
		if _, err := p.Sandboxes.Update(t.Context(), back, client.UpdateOptions{CheckpointInterval: new(time.Hour)}); err != nil { // there is no other before the loss
			t.Fatal(err)
		}
		p.count(t, back, 2)
		signal(strings.Fields(os.Getenv("MODBOX_TEST_KUBE_NODES"))[1], unix.SIGKILL)
		p.count(t, elsewhere, 2)
		unknown()
		p.count(t, paused, 2)
		began := time.Now()
		kubectl(t, "", "taint", "node", "node-2", outOfService)
		p.ended(t, lost)
		until(t, "the sandbox with a checkpoint has a Pod on the other node", func() bool { return p.node(t, back) == "node-1" })
		p.count(t, back, 2)
		t.Logf("all were ended or back %v after the node was out of service", time.Since(began))
		p.count(t, elsewhere, 3)
		p.destroy(t, back, paused, elsewhere)
	})
}
