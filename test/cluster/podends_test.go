package cluster_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
)

// pod returns the name of the Pod of a sandbox; "" if there is none.
func (perSandbox) pod(t *testing.T, id string) string {
	t.Helper()
	return kubectl(t, "", "-n", perSandboxNamespace, "get", "pods", "-l", "modbox/sandbox="+id, "-o", "jsonpath={.items[*].metadata.name}")
}

// moved checks that a sandbox has gone on in another Pod, and that the Pod before is gone.
func (p perSandbox) moved(t *testing.T, id, from string, want int) {
	t.Helper()
	until(t, "the Pod before is gone, and the sandbox has another", func() bool {
		pod := p.pod(t, id)
		return pod != "" && !strings.Contains(pod, from)
	})
	p.count(t, id, want)
}

// evict evicts the Pod of a sandbox by the API for that: a PodDisruptionBudget forbids it at first.
func (p perSandbox) evict(t *testing.T) {
	id := p.started(t, client.CreateOptions{})
	pod := p.pod(t, id)
	evict := func() (string, error) {
		cmd := exec.Command("kubectl", "create", "-f", "-", "--raw", "/api/v1/namespaces/"+perSandboxNamespace+"/pods/"+pod+"/eviction")
		cmd.Stdin = strings.NewReader(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "` + pod + `", "namespace": "` + perSandboxNamespace + `"}}`)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	kubectl(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: sandboxes, namespace: "+perSandboxNamespace+"}, spec: {minAvailable: 1, selector: {matchLabels: {app.kubernetes.io/component: sandbox}}}}", "apply", "-f", "-")
	until(t, "the budget knows the Pod", func() bool {
		return kubectl(t, "", "-n", perSandboxNamespace, "get", "pdb", "sandboxes", "-o", "jsonpath={.status.expectedPods}") == "1"
	})
	if out, err := evict(); err == nil || !strings.Contains(out, "disruption budget") {
		t.Errorf("an eviction that the budget forbids: %v: %s", err, out)
	}
	p.count(t, id, 2)
	if got := p.pod(t, id); got != pod {
		t.Errorf("the sandbox is in the Pod %q, want that it stays in %s", got, pod)
	}
	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pdb", "sandboxes")
	until(t, "the Pod can be evicted", func() bool {
		_, err := evict()
		return err == nil
	})
	p.moved(t, id, pod, 3)
	p.destroy(t, id)
}

// preempt has the scheduler end the Pod of a sandbox for a Pod with a higher priority: the sandbox goes on on the other node, or is paused when there is no space, and goes on later.
func (p perSandbox) preempt(t *testing.T) {
	server := kubectl(t, "", "-n", perSandboxNamespace, "get", "pod", "modbox-0", "-o", "jsonpath={.spec.nodeName}")
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[server]
	cpus, err := strconv.Atoi(kubectl(t, "", "get", "node", other, "-o", "jsonpath={.status.allocatable.cpu}"))
	if err != nil {
		t.Fatal(err)
	}
	most := strconv.Itoa(cpus*750) + "m" // a node has as much once, beside the servers
	apply(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}")
	urgent := func(node string) (remove func()) {
		t.Helper()
		kubectl(t, `
apiVersion: v1
kind: Pod
metadata: {name: urgent, labels: {modbox-test: urgent}}
spec:
  nodeSelector: {kubernetes.io/hostname: `+node+`}
  priorityClassName: urgent
  terminationGracePeriodSeconds: 1
  containers:
  - {name: pause, image: "pause:test", imagePullPolicy: Never, resources: {requests: {cpu: `+most+`}}}
`, "apply", "-f", "-")
		ready(t, "urgent")
		return func() { kubectl(t, "", "delete", "pod", "urgent", "--timeout", timeLimit.String()) }
	}
	id := p.counting(t, other, client.CreateOptions{Resources: client.Resources{CPU: most}})
	pod := p.pod(t, id)
	remove := urgent(other)
	p.moved(t, id, pod, 2)
	if got := p.node(t, id); got != server {
		t.Errorf("the sandbox is on %q, want %s", got, server)
	}
	remove()

	all := only(t, server)
	defer all()
	remove = urgent(server)
	until(t, "the sandbox is paused, because no node has space", func() bool { // meanwhile the server tries to resume it
		sb, err := p.Sandboxes.Get(t.Context(), id)
		return err == nil && sb.State == client.Paused && p.node(t, id) == ""
	})
	remove()
	all()
	p.count(t, id, 3)
	p.destroy(t, id)
}

// kubelet has the kubelet of a node end Pods that nobody has deleted: with a grace period, in which the sandbox moves, and at once.
func (p perSandbox) kubelet(t *testing.T) {
	id := p.started(t, client.CreateOptions{})
	pod := p.pod(t, id)
	kubectl(t, "", "-n", perSandboxNamespace, "patch", "pod", pod, "--type=merge", "-p", `{"spec": {"activeDeadlineSeconds": 1}}`)
	p.moved(t, id, pod, 2)

	dir := process("worker", "--config=/etc/modbox/config/modbox.yaml", "--id="+p.pods(t, ".metadata.labels.modbox/worker")[0])
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.ended(t, id)
	p.destroy(t)
}
