package cluster_test

import (
	"encoding/json"
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

// awayFor is how long the API server of Kubernetes does not answer.
const awayFor = 2 * time.Minute

// started makes a sandbox that counts, and returns its id.
func (p perSandbox) started(t *testing.T, o client.CreateOptions) string {
	t.Helper()
	o.Image = "modbox/base"
	sb, err := p.Sandboxes.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.bash(t, sb.ID, counter)
	p.count(t, sb.ID, 1)
	return sb.ID
}

// paused makes a sandbox that counts, pauses it, and returns its id.
func (p perSandbox) paused(t *testing.T) string {
	t.Helper()
	id := p.started(t, client.CreateOptions{})
	if _, err := p.Sandboxes.Pause(t.Context(), id); err != nil {
		t.Fatalf("pause: %v", err)
	}
	p.none(t, "after a pause")
	return id
}

// fails checks that a new sandbox fails to start, with a reason.
func (p perSandbox) fails(t *testing.T, size client.Resources, why string) {
	t.Helper()
	sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: size})
	if err != nil {
		t.Fatal(err)
	}
	p.failed(t, sb.ID, why)
}

// failed checks that a sandbox fails to start, with a reason.
func (p perSandbox) failed(t *testing.T, id, why string) {
	t.Helper()
	sb, err := p.Sandboxes.Wait(t.Context(), id, client.Running)
	if err != nil {
		t.Fatal(err)
	}
	if sb.State != client.Failed || sb.Cause == nil || sb.Cause.Code != "start" || !strings.Contains(sb.Cause.Message, why) {
		t.Errorf("the sandbox is %s, %+v, want that its start failed: %s", sb.State, sb.Cause, why)
	}
}

// resumeFails checks that the resume of a sandbox returns an error, and that it stays paused.
func (p perSandbox) resumeFails(t *testing.T, id string, code client.Code, why string) {
	t.Helper()
	once, err := client.New(p.url, p.token, client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := once.Sandboxes.Resume(t.Context(), id, client.ResumeOptions{}); !client.IsCode(err, code) || !strings.Contains(err.Error(), why) {
		t.Errorf("resume: %v, want %s: %s", err, code, why)
	}
	if sb, err := p.Sandboxes.Get(t.Context(), id); err != nil || sb.State != client.Paused {
		t.Errorf("the sandbox is %+v, %v, want that it is still paused", sb, err)
	}
}

// quota checks what a ResourceQuota does.
func (p perSandbox) quota(t *testing.T) {
	paused := p.paused(t)
	kubectl(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: sandboxes, namespace: "+perSandboxNamespace+"}, spec: {hard: {pods: 2}}}", "apply", "-f", "-")
	remove := sync.OnceFunc(func() { kubectl(t, "", "-n", perSandboxNamespace, "delete", "resourcequota", "sandboxes") })
	defer remove()
	until(t, "the quota counts", func() bool {
		return kubectl(t, "", "-n", perSandboxNamespace, "get", "resourcequota", "sandboxes", "-o", "jsonpath={.status.used.pods}") == "2"
	})
	p.fails(t, client.Resources{}, "ResourceQuota")
	p.resumeFails(t, paused, client.QuotaExceeded, "ResourceQuota")
	p.none(t, "after a refusal")
	remove()
	p.count(t, paused, 2)
	p.destroy(t, paused)
}

// memory checks that a sandbox cannot use more memory than its Pod has.
func (p perSandbox) memory(t *testing.T) {
	sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/bash", "-c", "head -c 1G /dev/zero | tail"}, Timeout: timeLimit})
	t.Logf("a command that uses 1 GiB: %v", err)
	if sb, err = p.Sandboxes.Wait(t.Context(), sb.ID, client.Destroyed); err != nil || !sb.State.Ended() || sb.Cause == nil || sb.Cause.Code != "oom" {
		t.Fatalf("the sandbox is %+v, %v, want that it has ended for lack of memory", sb, err)
	}
	t.Logf("the sandbox has ended: %+v", sb.Cause)
	p.none(t, "after the sandbox used too much memory")
}

// space checks what happens to sandboxes for which no node has space, to a sandbox whose Pod is too many, and to a sandbox whose Pod is deleted before it runs.
func (p perSandbox) space(t *testing.T) {
	p.set(t, "MODBOX_KUBERNETES_MAX_PODS=1", "MODBOX_KUBERNETES_START_TIMEOUT=10s")
	defer p.set(t, "MODBOX_KUBERNETES_MAX_PODS-", "MODBOX_KUBERNETES_START_TIMEOUT-")
	const noSpace = "no node of the cluster has space"
	p.fails(t, client.Resources{CPU: "8"}, noSpace)
	p.none(t, "after a refusal")
	sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: client.Resources{CPU: "8"}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "there is a Pod", func() bool { return len(p.pods(t, ".metadata.name")) > 0 })
	kubectl(t, "", "-n", perSandboxNamespace, "delete", "pods", "-l", "modbox/sandbox="+sb.ID)
	p.failed(t, sb.ID, "deleted while it start")
	p.none(t, "after its Pod was deleted")

	id := p.started(t, client.CreateOptions{})
	p.fails(t, client.Resources{}, "kubernetes.max_pods")
	if _, err := p.Sandboxes.Pause(t.Context(), id); err != nil {
		t.Fatalf("pause: %v", err)
	}
	p.none(t, "after a pause")
	all := only(t, "")
	defer all()
	p.resumeFails(t, id, client.Unavailable, noSpace)
	p.none(t, "after a refusal")
	all()
	p.count(t, id, 2)
	p.destroy(t, id)
}

// image checks what happens to sandboxes when a node cannot pull the image of Pods.
func (p perSandbox) image(t *testing.T) {
	paused := p.paused(t)
	template := kubectl(t, "", "-n", perSandboxNamespace, "get", "configmap", "modbox-sandbox", "-o", `jsonpath={.data.pod\.yaml}`)
	set := func(template string) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"pod.yaml": template}})
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, "", "-n", perSandboxNamespace, "patch", "configmap", "modbox-sandbox", "--type=merge", "-p", string(patch))
		kubectl(t, "", "-n", perSandboxNamespace, "rollout", "restart", "statefulset/modbox")
		p.rolledOut(t)
	}
	restore := sync.OnceFunc(func() { set(template) })
	defer restore()
	set(strings.NewReplacer("image: modbox:test", "image: 127.0.0.1:1/modbox:none", "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent").Replace(template)) // nothing listens there
	const why = "the node cannot pull the image of the Pod"
	p.fails(t, client.Resources{}, why)
	p.resumeFails(t, paused, client.Unavailable, why)
	p.none(t, "whose image cannot be pulled")
	restore()
	p.count(t, paused, 2)
	p.destroy(t, paused)
}

// away checks that sandboxes go on for minutes while the API server of Kubernetes does not answer, that a pause ends, that a sandbox which needs a Pod fails or stays
// paused, and that no Pod for which the API server was asked then stays.
func (p perSandbox) away(t *testing.T) {
	p = p.direct(t)
	paused := p.paused(t)
	goesOn, leaves := p.started(t, client.CreateOptions{}), p.started(t, client.CreateOptions{})
	goOn := stopAPIServer(t)
	defer goOn()
	began := time.Now()
	const why = "the API server of Kubernetes does not answer"
	p.fails(t, client.Resources{}, why)
	p.resumeFails(t, paused, client.Unavailable, why)
	if _, err := p.Sandboxes.Pause(t.Context(), leaves); err != nil {
		t.Errorf("pause: %v", err)
	}
	n := 1
	for time.Since(began) < awayFor { // the time is part of the fault
		n++
		p.count(t, goesOn, n)
		<-time.After(time.Second)
	}
	back := time.Now()
	goOn()
	until(t, "only the Pod of the sandbox that runs is there", func() bool {
		got := p.pods(t, ".metadata.labels.modbox/sandbox")
		return len(got) == 1 && got[0] == goesOn
	})
	t.Logf("the Pods were as they should be %v after the API server was back", time.Since(back))
	p.count(t, goesOn, n+1)
	nodesSeen(t, back)
	p.count(t, leaves, 2)
	p.count(t, paused, 2)
	p.destroy(t, goesOn, leaves, paused)
	kubectl(t, "", "wait", "--for=condition=Ready", "--timeout", timeLimit.String(), "node", "--all")
	p.rolledOut(t)
	for line := range strings.Lines(kubectl(t, "", "-n", perSandboxNamespace, "logs", "modbox-0")) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line of the server's log is no JSON: %s", line)
		}
	}
}

// direct returns the installation at the address of the server's Pod: Kubernetes takes the Pod out of its Service for seconds after nodes were not seen.
func (p perSandbox) direct(t *testing.T) perSandbox {
	t.Helper()
	p.url = "http://" + kubectl(t, "", "-n", perSandboxNamespace, "get", "pod", "modbox-0", "-o", "jsonpath={.status.podIP}") + ":7070"
	var err error
	if p.Client, err = client.New(p.url, p.token); err != nil {
		t.Fatal(err)
	}
	return p
}

// nodesSeen waits until Kubernetes has heard of each node after a time, and takes each for ready.
func nodesSeen(t *testing.T, after time.Time) {
	t.Helper()
	until(t, "all nodes have renewed their leases", func() bool {
		times := strings.Fields(kubectl(t, "", "-n", "kube-node-lease", "get", "leases", "-o", "jsonpath={.items[*].spec.renewTime}"))
		return len(times) > 0 && !slices.ContainsFunc(times, func(text string) bool {
			renewed, err := time.Parse(time.RFC3339Nano, text)
			return err != nil || renewed.Before(after)
		})
	})
	kubectl(t, "", "wait", "--for=condition=Ready", "--timeout", timeLimit.String(), "node", "--all")
}

// stopAPIServer has the API server of Kubernetes stand still until the function that it returns is called.
func stopAPIServer(t *testing.T) (goOn func()) {
	t.Helper()
	dir := process("kube-apiserver")
	signal := func(s unix.Signal) {
		t.Helper()
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = unix.Kill(pid, s)
		}
		if err != nil {
			t.Fatalf("the API server: %v", err)
		}
	}
	signal(unix.SIGSTOP)
	goOn = sync.OnceFunc(func() { signal(unix.SIGCONT) })
	t.Cleanup(goOn)
	until(t, "all threads of the API server stand still", func() bool {
		threads, err := filepath.Glob(dir + "/task/*/stat")
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			return err != nil || !strings.Contains(string(text), ") T ")
		})
	})
	return goOn
}
