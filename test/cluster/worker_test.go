package cluster_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/worker"
	"github.com/modbox/modbox/test/testserver"
)

// workerPod is a worker in a Pod without privileges, on a node. It joins the server by the name of a Service.
func workerPod(name, node string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, labels: {modbox-test: worker}}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + node + `}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 5
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    seccompProfile: {type: Unconfined}
  containers:
  - name: worker
    image: modbox:test
    imagePullPolicy: Never
    args: [worker, --join, "control:7071", --health-listen, ":7072", --token-file, /token/token, --name, ` + name + `, --state-dir, /state/worker, --run-dir, /tmp/run]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    readinessProbe: {httpGet: {path: /readyz, port: 7072}, periodSeconds: 1}
    resources:
      requests: {cpu: 100m, memory: 1Gi}
      limits: {memory: 1Gi}
    volumeMounts:
    - {name: token, mountPath: /token}
    - {name: state, mountPath: /state}
    - {name: tmp, mountPath: /tmp}
  volumes:
  - {name: token, secret: {secretName: worker-token}}
  - {name: state, emptyDir: {}}
  - {name: tmp, emptyDir: {medium: Memory}}
`
}

// hasBox reports whether the worker in a Pod has the box of a sandbox.
func hasBox(worker, id string) bool {
	dir := process("worker", "--join", "--name", worker)
	_, err := os.Stat(filepath.Join(dir, "root/tmp/run/boxes", id))
	return dir != "" && err == nil
}

// startWithPods starts a server whose workers are Pods with these names, each on the node of its number. args are added to `modbox server`.
func startWithPods(t *testing.T, names []string, args ...string) *testserver.Server {
	t.Helper()
	free, err := net.Listen("tcp", net.JoinHostPort(address(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	_ = free.Close()
	stateDir := t.TempDir()
	dir := filepath.Join(stateDir, "worker")
	if _, err := worker.OpenAuthority(dir); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(dir, worker.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: worker-token}
data: {token: `+base64.StdEncoding.EncodeToString(token)+`}
`)
	host, port, _ := net.SplitHostPort(listen)
	apply(t, `
apiVersion: v1
kind: Service
metadata: {name: control}
spec: {ports: [{port: 7071}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: control, labels: {kubernetes.io/service-name: control}}
addressType: IPv4
ports: [{name: "", port: `+port+`}]
endpoints: [{addresses: [`+host+`]}]
`)
	for i, name := range names { // they wait for the server
		apply(t, workerPod(name, fmt.Sprintf("node-%d", i+1)))
	}
	s := testserver.StartSmallIn(t, stateDir, append(args, "--worker-listen", listen)...)
	for _, name := range names {
		ready(t, name)
	}
	until(t, "all workers are connected", func() bool { return strings.Count(s.Log(), "a worker is connected") == len(names) })
	return s
}

const (
	// counter starts a shell that remembers a number, increment adds 1 to it and prints it.
	counter   = `mkfifo /tmp/in /tmp/out; setsid nohup bash -c 'n=0; while :; do read line </tmp/in; n=$((n+1)); echo $n >/tmp/out; done' >/dev/null 2>&1 &`
	increment = `echo >/tmp/in; cat /tmp/out`
)

// pair is two sandboxes that count, each on a worker of its own.
type pair struct {
	*testserver.Server
	t             *testing.T
	first, second string // on worker-1 and worker-2
}

// startPair starts a server with two workers, and two sandboxes.
func startPair(t *testing.T) pair {
	t.Helper()
	names := []string{"worker-1", "worker-2"}
	s := startWithPods(t, names)
	on := map[string]string{}
	for range 6 {
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
		for _, name := range names {
			if hasBox(name, sb.ID) {
				on[name] = sb.ID
			}
		}
		if len(on) == len(names) {
			break
		}
		if len(on) == 0 {
			t.Fatal("the sandbox is on no worker")
		}
	}
	p := pair{s, t, on["worker-1"], on["worker-2"]}
	if p.first == "" || p.second == "" {
		t.Fatalf("the workers have the sandboxes %q", on)
	}
	for _, id := range on {
		s.Bash(id, counter, time.Minute)
		p.count(id, 1)
	}
	return p
}

// count adds 1 to the number that a sandbox remembers, and checks it.
func (p pair) count(id string, want int) {
	p.t.Helper()
	out := p.Bash(id, increment, time.Minute)
	if got := strings.TrimSpace(string(out.Stdout)); got != fmt.Sprint(want) {
		p.t.Errorf("the counter is %q, want %d (%s)", got, want, out.Stderr)
	}
}

// moves pauses the sandbox of worker-1, makes the worker go away, and checks that the sandbox goes on on worker-2.
func (p pair) moves(leave func()) {
	p.t.Helper()
	began := time.Now()
	if _, err := p.Sandboxes.Pause(p.t.Context(), p.first); err != nil {
		p.t.Fatalf("pause: %v", err)
	}
	p.t.Logf("paused after %v", time.Since(began))
	leave()
	began = time.Now()
	if _, err := p.Sandboxes.Resume(p.t.Context(), p.first, client.ResumeOptions{Memory: "require"}); err != nil {
		p.t.Fatalf("resume on the other node: %v", err)
	}
	p.t.Logf("resumed on the other node after %v", time.Since(began))
	if !hasBox("worker-2", p.first) {
		p.t.Error("the sandbox was not resumed on the other node")
	}
	p.count(p.first, 2)
	p.count(p.second, 2)
}

// TestWorkersInPods runs sandboxes on workers in two Pods, and moves the memory of a sandbox from one node to the other.
func TestWorkersInPods(t *testing.T) {
	startPair(t).moves(func() { kubectl(t, "", "delete", "pod", "worker-1", "--timeout", timeLimit.String()) })
}

// TestNodeLost kills all processes of a node at once. The cluster has one node less for the tests that follow, so it is run last.
func TestNodeLost(t *testing.T) {
	startPair(t).moves(func() {
		pid, err := strconv.Atoi(strings.Fields(os.Getenv("MODBOX_TEST_KUBE_NODES"))[0])
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	kubectl(t, "", "wait", "--for=condition=Ready=Unknown", "--timeout", timeLimit.String(), "node/node-1")
	kubectl(t, "", "delete", "pod", "worker-1", "--force", "--grace-period", "0")
}
