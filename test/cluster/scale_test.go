package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/kubernetes"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

const (
	scaleNamespace = "scale"
	// scaleAtOnce is the number of Pods that are made at the same time.
	scaleAtOnce = 64
	// scaleIdle is the time for which the Pods are only watched.
	scaleIdle = 30 * time.Second
	// podsOfNode is the number of Pods that a fake node may have, as the default of a kubelet.
	podsOfNode = 110
)

// TestScale measures what many Pods of sandboxes cost this process, as they cost a server, and the control plane of Kubernetes. The Pods run on fake
// nodes of kwok. It fails only if a call fails.
func TestScale(t *testing.T) {
	counts := strings.Fields(os.Getenv("MODBOX_TEST_SCALE_PODS"))
	if len(counts) == 0 {
		t.Skip("takes minutes: scripts/bench-pods.sh")
	}
	address(t)
	makeNamespace(t, scaleNamespace)
	most := 0
	for _, count := range counts {
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	startFakeNodes(t, most/podsOfNode+2)
	for _, count := range counts {
		t.Run(count, func(t *testing.T) {
			n, _ := strconv.Atoi(count)
			newScale(t).run(n)
		})
	}
}

// startFakeNodes makes nodes whose Pods kwok pretends to run.
func startFakeNodes(t *testing.T, n int) {
	t.Helper()
	dir := os.Getenv("MODBOX_TEST_KWOK")
	log, err := os.Create(filepath.Join(t.TempDir(), "kwok.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "kwok"), "--config", filepath.Join(dir, "stages.yaml"), "--kubeconfig", os.Getenv("KUBECONFIG"),
		"--manage-all-nodes=false", "--manage-nodes-with-label-selector", "type=fake", "--node-lease-duration-seconds", "40")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("kwok: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("kwok:\n%s", text[max(0, len(text)-4000):])
		}
	})
	var nodes strings.Builder
	for i := range n {
		const space = "{cpu: 64, memory: 512Gi, ephemeral-storage: 8Ti, pods: 110}"
		fmt.Fprintf(&nodes, "---\n{apiVersion: v1, kind: Node, metadata: {name: fake-%d, labels: {type: fake}}, status: {allocatable: %s, capacity: %s}}\n", i, space, space)
	}
	kubectl(t, nodes.String(), "apply", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Ready", "--timeout", timeLimit.String(), "node", "-l", "type=fake")
}

// scale makes Pods as a server does. The workers in them, which nobody runs, count as connected as soon as a Pod runs.
type scale struct {
	kubernetes.Client
	t        *testing.T
	template *corev1.PodTemplateSpec
	requests atomic.Int64 // to the API server

	mu        sync.Mutex
	connected map[string]chan struct{} // of workers whose Pod has not run yet; guarded by mu

	gone atomic.Int64 // Pods
}

func newScale(t *testing.T) *scale {
	t.Helper()
	s := &scale{t: t, connected: map[string]chan struct{}{}}
	var kubeconfig struct {
		Clusters []struct {
			Cluster struct {
				Server               string
				CertificateAuthority string `json:"certificate-authority"`
			}
		}
		Users []struct {
			User struct {
				ClientCertificate string `json:"client-certificate"`
				ClientKey         string `json:"client-key"`
			}
		}
	}
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err == nil {
		err = yaml.Unmarshal(text, &kubeconfig)
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := kubeconfig.Clusters[0].Cluster, kubeconfig.Users[0].User
	s.Client, err = kubernetes.NewClient(&rest.Config{
		Host: cluster.Server, TLSClientConfig: rest.TLSClientConfig{CAFile: cluster.CertificateAuthority, CertFile: user.ClientCertificate, KeyFile: user.ClientKey},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				s.requests.Add(1)
				return next.RoundTrip(r)
			})
		},
	}, scaleNamespace)
	if err != nil {
		t.Fatal(err)
	}
	s.template = chartTemplate(t)
	s.template.Spec.ServiceAccountName, s.template.Spec.NodeSelector = "", map[string]string{"type": "fake"}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// chartTemplate returns the chart's template of the Pods of sandboxes.
func chartTemplate(t *testing.T) *corev1.PodTemplateSpec {
	t.Helper()
	manifest, err := os.ReadFile(os.Getenv("MODBOX_TEST_CHART_PODS"))
	if err != nil {
		t.Fatalf("the objects of the chart: %v", err)
	}
	for _, object := range strings.Split(string(manifest), "\n---\n") {
		var config corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(object), &config); err != nil || config.Kind != "ConfigMap" || config.Data["pod.yaml"] == "" {
			continue // another object
		}
		path := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(path, []byte(config.Data["pod.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		template, err := kubernetes.ReadTemplate(path)
		if err != nil {
			t.Fatal(err)
		}
		return template
	}
	t.Fatal("the chart has no template of Pods")
	return nil
}

// Watch implements [kubernetes.Client]. It notes which Pods run and which are gone.
func (s *scale) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.Client.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			s.note(pod, e.Type == watch.Deleted)
		}
		return e, true
	}), nil
}

func (s *scale) note(pod *corev1.Pod, deleted bool) {
	if deleted {
		s.gone.Add(1)
	}
	if pod.Status.Phase != corev1.PodRunning {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.connected[pod.Name]; c != nil {
		close(c)
		delete(s.connected, pod.Name)
	}
}

// start returns a supplier that knows some workers.
func (s *scale) start(keep []string) *kubernetes.Pods {
	s.t.Helper()
	pods := kubernetes.New(kubernetes.Config{
		Client: s, Namespace: scaleNamespace, Template: s.template, Installation: scaleNamespace, Epoch: 1, MaxPods: 100_000, MemoryOverhead: 256 << 20, DiskOverhead: 1 << 30, StartTimeout: timeLimit,
		Current: func(context.Context) error { return nil }, Token: func(string) string { return strings.Repeat("t", 64) },
		Log: slog.New(slog.DiscardHandler),
	})
	if err := pods.Start(s.t.Context(), keep, func(id string, how fleet.Loss) { s.t.Errorf("worker %s is lost: %s", id, how.Reason) }); err != nil {
		s.t.Fatal(err)
	}
	return pods
}

// run makes n Pods, watches them, finds them again as a server that restarts, and deletes them.
func (s *scale) run(n int) {
	t, ids := s.t, make([]string, n)
	empty := heap()
	pods := s.start(nil)
	s.measured("make", n, func() {
		var wg sync.WaitGroup
		places := make(chan struct{}, scaleAtOnce)
		for i := range ids {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				ids[i] = s.supply(pods)
			})
		}
		wg.Wait()
	})
	t.Logf("%d Pods: %.1f KiB of heap for each", n, float64(heap()-empty)/1024/float64(n))
	s.measured(fmt.Sprintf("watch for %v", scaleIdle), n, func() { <-time.After(scaleIdle) })
	pods.Close()
	s.measured("start of a server", n, func() { pods = s.start(ids) })
	defer pods.Close()
	s.gone.Store(0)
	s.measured("delete", n, func() {
		for _, id := range ids {
			pods.Release(id)
		}
		for k := range n { // each has the time limit
			until(t, "another Pod is gone", func() bool { return s.gone.Load() > int64(k) })
		}
	})
}

// supply makes a Pod.
func (s *scale) supply(pods *kubernetes.Pods) string {
	id, connected := worker.NewSuppliedID(), make(chan struct{})
	s.mu.Lock()
	s.connected[strings.ToLower(id)] = connected
	s.mu.Unlock()
	err := pods.Supply(s.t.Context(), fleet.Wanted{
		ID: id, Workspace: "ws_scale", Box: driver.Spec{ID: sandbox.ID(id), Resources: sandbox.Resources{MemoryBytes: 512 << 20, CPUMilli: 500, DiskBytes: 1 << 30}},
	}, connected)
	if err != nil {
		s.t.Error(err)
	}
	return id
}

// heap returns the size of all reachable objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// measured calls f and shows what it took.
func (s *scale) measured(what string, n int, f func()) {
	s.t.Helper()
	programs := []string{"kube-apiserver", "etcd", "kube-scheduler"}
	requests, own, began := s.requests.Load(), ownCPU(s.t), time.Now()
	var before []time.Duration
	for _, name := range programs {
		cpu, _ := used(s.t, name)
		before = append(before, cpu)
	}
	f()
	took, ownAfter := time.Since(began), ownCPU(s.t)
	of := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000/float64(n)) }
	text := fmt.Sprintf("%d Pods, %s: %.1f s, %d requests; CPU of a Pod: this process %s", n, what, took.Seconds(), s.requests.Load()-requests, of(ownAfter-own))
	for i, name := range programs {
		cpu, rss := used(s.t, name)
		text += fmt.Sprintf(", %s %s (now %d MiB)", name, of(cpu-before[i]), rss>>20)
	}
	s.t.Log(text)
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// used returns the CPU time that a program of the control plane has used, and its resident memory.
func used(t *testing.T, name string) (cpu time.Duration, rss int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process(name), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the third, the state, on
	number := func(field int) int64 {
		n, err := strconv.ParseInt(fields[field-3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const tick = time.Second / 100
	return time.Duration(number(14)+number(15)) * tick, number(24) * int64(os.Getpagesize())
}
