package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	clienttesting "k8s.io/client-go/testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/kubernetes"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

const template = `
apiVersion: v1
kind: PodTemplate
template:
  metadata: {labels: {app: modbox}}
  spec:
    restartPolicy: Never
    containers: [{name: worker, image: "modbox:test", args: [worker]}]
`

// cluster is a fake API server, as a client of it, with a supplier.
type cluster struct {
	*gentype.FakeClientWithList[*corev1.Pod, *corev1.PodList]
	clienttesting.Fake
	pods     *kubernetes.Pods
	lost     chan string   // id and reason
	replaced atomic.Bool   // another server has taken over
	asked    atomic.Int32  // calls that asked for that
	watched  chan struct{} // closed when the Pods are watched
}

// installation and epoch are of the server of the tests.
const (
	installation = "i1"
	epoch        = 7
)

// patience bounds the wait for what the supplier does in the background.
const patience = time.Minute

func newCluster(t *testing.T, timeout time.Duration, existing ...runtime.Object) *cluster {
	t.Helper()
	return newClusterOf(t, kubernetes.Config{StartTimeout: timeout}, existing...)
}

// newClusterOf is newCluster for a server with other settings.
func newClusterOf(t *testing.T, cfg kubernetes.Config, existing ...runtime.Object) *cluster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(path, []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := kubernetes.ReadTemplate(path)
	if err != nil {
		t.Fatal(err)
	}
	kinds := runtime.NewScheme()
	kinds.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
	objects := clienttesting.NewObjectTracker(kinds, serializer.NewCodecFactory(kinds).UniversalDecoder())
	for _, o := range existing {
		if err := objects.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{lost: make(chan string, 10), watched: make(chan struct{})}
	begun := sync.OnceFunc(func() { close(c.watched) })
	c.AddReactor("*", "*", clienttesting.ObjectReaction(objects))
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := objects.Watch(a.GetResource(), a.GetNamespace())
		begun()
		return true, w, err
	})
	c.FakeClientWithList = gentype.NewFakeClientWithList(&c.Fake, "boxes", corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"),
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} },
		func(to, from *corev1.PodList) { to.ListMeta = from.ListMeta },
		func(l *corev1.PodList) []*corev1.Pod { return gentype.ToPointerSlice(l.Items) },
		func(l *corev1.PodList, items []*corev1.Pod) { l.Items = gentype.FromPointerSlice(items) })
	cfg.Client, cfg.Namespace, cfg.Template, cfg.Installation, cfg.Epoch = c, "boxes", read, installation, epoch
	cfg.Token = func(id string) string { return "token of " + id }
	cfg.Current = func(context.Context) error {
		c.asked.Add(1)
		if c.replaced.Load() {
			return errors.New("another server has taken over")
		}
		return nil
	}
	cfg.MaxPods, cfg.MemoryOverhead, cfg.DiskOverhead, cfg.Log = 3, 1<<20, 1<<20, slog.New(slog.DiscardHandler)
	c.pods = kubernetes.New(cfg)
	t.Cleanup(c.pods.Close)
	return c
}

// IsWatchListSemanticsUnSupported has the informer list before it watches.
func (c *cluster) IsWatchListSemanticsUnSupported() bool { return true }

func (c *cluster) start(t *testing.T, keep ...string) {
	t.Helper()
	if err := c.pods.Start(t.Context(), keep, func(id string, how fleet.Loss) {
		c.lost <- fmt.Sprint(id, " ", how.Reason, map[bool]string{true: ", oom"}[how.OOM])
	}); err != nil {
		t.Fatal(err)
	}
	<-c.watched // unlike a real API server, the fake server forgets what changes between the list and the watch
}

// names returns the names of the Pods.
func (c *cluster) names(t *testing.T) (names []string) {
	t.Helper()
	list, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// becomes waits until the Pods are those.
func (c *cluster) becomes(t *testing.T, want ...string) {
	t.Helper()
	for began := time.Now(); fmt.Sprint(c.names(t)) != fmt.Sprint(want); time.Sleep(time.Millisecond) { // polling: the fake server says nothing of deletions
		if time.Since(began) > patience {
			t.Fatalf("the Pods are %v, want %v", c.names(t), want)
		}
	}
}

// status gives a Pod another status, as soon as there is the Pod.
func (c *cluster) status(t *testing.T, id string, s corev1.PodStatus) {
	t.Helper()
	for began := time.Now(); ; {
		pod, err := c.Get(t.Context(), strings.ToLower(id), metav1.GetOptions{})
		if apierrors.IsNotFound(err) && time.Since(began) < patience {
			time.Sleep(time.Millisecond) // polling
			continue
		}
		if err == nil {
			pod.Status = s
			_, err = c.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}

// existing returns a Pod that the server of an epoch has made.
func existing(id string, epoch int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(id), Namespace: "boxes", Labels: map[string]string{
		"app": "modbox", "modbox/worker": id, "modbox/installation": installation, "modbox/epoch": strconv.Itoa(epoch), "modbox/workspace": "ws_1",
	}}}
}

func wanted() fleet.Wanted {
	return fleet.Wanted{ID: worker.NewSuppliedID(), Workspace: "ws_1", Box: driver.Spec{ID: "sbx_1", Resources: sandbox.Resources{MemoryBytes: 64 << 20, CPUMilli: 500, DiskBytes: 128 << 20}}}
}

func TestPodHasTheLimitsOfItsBox(t *testing.T) {
	c := newCluster(t, time.Hour)
	c.start(t)
	w := wanted()
	w.Files = 10 << 20
	connected := make(chan struct{})
	close(connected)
	if err := c.pods.Supply(t.Context(), w, connected); err != nil {
		t.Fatal(err)
	}
	pod, err := c.Get(t.Context(), strings.ToLower(w.ID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := pod.Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]string{"memory": "65Mi", "cpu": "500m", "ephemeral-storage": "203Mi"} {
		if limit, request := r.Limits[name], r.Requests[name]; limit.String() != want || request.String() != want {
			t.Errorf("limit and request of %s are %s and %s, want %s", name, limit.String(), request.String(), want)
		}
	}
	if got := fmt.Sprint(pod.Spec.Containers[0].Args); got != "[worker --id="+w.ID+"]" {
		t.Errorf("the arguments are %s", got)
	}
	for name, want := range map[string]string{"app": "modbox", "modbox/sandbox": "sbx_1", "modbox/workspace": "ws_1", "modbox/installation": installation, "modbox/epoch": strconv.Itoa(epoch), "modbox/range": "0"} {
		if pod.Labels[name] != want {
			t.Errorf("the label %s is %q, want %q", name, pod.Labels[name], want)
		}
	}
	if got, want := pod.Annotations["modbox/join-token"], "token of "+w.ID; got != want {
		t.Errorf("the token is %q, want %q", got, want)
	}
	c.pods.Release(w.ID)
	c.becomes(t)
}

// TestPodOfSeveralBoxes checks that a Pod for several boxes has the resources of all of them.
func TestPodOfSeveralBoxes(t *testing.T) {
	c := newCluster(t, time.Hour)
	c.start(t)
	w := wanted()
	w.Boxes, w.Files = 3, 10<<20
	connected := make(chan struct{})
	close(connected)
	if err := c.pods.Supply(t.Context(), w, connected); err != nil {
		t.Fatal(err)
	}
	pod, err := c.Get(t.Context(), strings.ToLower(w.ID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := pod.Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]string{"memory": "195Mi", "cpu": "1500m", "ephemeral-storage": "587Mi"} {
		if limit, request := r.Limits[name], r.Requests[name]; limit.String() != want || request.String() != want {
			t.Errorf("limit and request of %s are %s and %s, want %s", name, limit.String(), request.String(), want)
		}
	}
	if name, ok := pod.Labels["modbox/sandbox"]; ok || pod.Labels["modbox/workspace"] != "ws_1" {
		t.Errorf("the labels are %v; want the label of the workspace and none of a sandbox, which is %q", pod.Labels, name)
	}
}

func TestPodsOfAnEarlierServer(t *testing.T) {
	kept, unknown, own, gone := worker.NewSuppliedID(), worker.NewSuppliedID(), worker.NewSuppliedID(), worker.NewSuppliedID()
	otherApp, otherInstallation := existing(worker.NewSuppliedID(), epoch-1), existing(worker.NewSuppliedID(), epoch-1)
	otherApp.Labels["app"], otherInstallation.Labels["modbox/installation"] = "other", "i2"
	later := existing(worker.NewSuppliedID(), epoch+1)
	other := existing("modbox-0", epoch-1) // it has the labels, but no server gives such an id
	c := newCluster(t, time.Hour, existing(kept, epoch-1), existing(unknown, epoch-1), existing(own, epoch), otherApp, otherInstallation, later, other)
	c.start(t, kept, gone)
	if got, want := <-c.lost, gone+" the Pod of the sandbox was deleted while the server was away"; got != want {
		t.Errorf("lost %q, want %q", got, want)
	}
	c.becomes(t, slices.Sorted(slices.Values([]string{"modbox-0", strings.ToLower(kept), otherApp.Name, otherInstallation.Name, later.Name}))...)
}

// TestPodsOfServers checks that each of several servers sees the Pods of its sandboxes alone, and says in new Pods whose they are and where it is.
func TestPodsOfServers(t *testing.T) {
	without := existing(worker.NewSuppliedID(), epoch-1) // of an earlier version
	of := func(shard string) (fleet.Wanted, *corev1.Pod) {
		w := wanted()
		w.ID, w.Box.ID = worker.NewSuppliedID(), sandbox.ID("sbx_"+shard)
		c := newClusterOf(t, kubernetes.Config{StartTimeout: time.Hour, Join: "192.0.2.7:7071"})
		c.start(t)
		connected := make(chan struct{})
		close(connected)
		if err := c.pods.Supply(t.Context(), w, connected); err != nil {
			t.Fatal(err)
		}
		pod, err := c.Get(t.Context(), strings.ToLower(w.ID), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(pod.Spec.Containers[0].Args), "[worker --join=192.0.2.7:7071 --id="+w.ID+"]"; got != want {
			t.Errorf("the arguments are %s, want %s", got, want)
		}
		return w, pod
	}
	_, low := of("07")
	_, high := of("e0")
	if low.Labels["modbox/range"] != "0" || high.Labels["modbox/range"] != "14" {
		t.Errorf("the labels are %v and %v", low.Labels, high.Labels)
	}
	parts := sandbox.Parts(2)
	for name, test := range map[string]struct {
		own  sandbox.Ranges
		left []*corev1.Pod // that the server, which expects none, does not delete
	}{
		"first": {parts[0], []*corev1.Pod{high}}, "second": {parts[1], []*corev1.Pod{without, low}}, "only": {sandbox.AllRanges, nil},
	} {
		var want []string
		for _, pod := range test.left {
			want = append(want, pod.Name)
		}
		slices.Sort(want)
		c := newClusterOf(t, kubernetes.Config{StartTimeout: time.Hour, Own: test.own}, without.DeepCopy(), low.DeepCopy(), high.DeepCopy())
		c.start(t)
		c.becomes(t, want...)
		if t.Failed() {
			t.Fatalf("the %s server", name)
		}
	}
}

// TestReplacedServer checks that a server deletes no Pod after another has taken over.
func TestReplacedServer(t *testing.T) {
	kept, marker, unknown, last := worker.NewSuppliedID(), worker.NewSuppliedID(), worker.NewSuppliedID(), worker.NewSuppliedID()
	c := newCluster(t, time.Hour, existing(kept, epoch-1), existing(marker, epoch-1))
	c.start(t, kept, marker)
	c.replaced.Store(true)
	for id, epoch := range map[string]int{unknown: epoch + 1, last: epoch} { // the first by the other server
		if _, err := c.Create(t.Context(), existing(id, epoch), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.pods.Release(kept)
	if err := c.Delete(t.Context(), strings.ToLower(marker), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	<-c.lost // so the server has seen the others
	want := []string{strings.ToLower(kept), strings.ToLower(last), strings.ToLower(unknown)}
	slices.Sort(want)
	for asked := c.asked.Load(); c.asked.Load() < asked+4; time.Sleep(time.Millisecond) { // polling: it tries again and again
		if got := c.names(t); !slices.Equal(got, want) {
			t.Fatalf("the Pods are %v, want %v", got, want)
		}
	}
	c.replaced.Store(false) // as when the database did not answer
	c.becomes(t, strings.ToLower(unknown))
}

func TestLostPods(t *testing.T) {
	deleted, kept := worker.NewSuppliedID(), worker.NewSuppliedID()
	c := newCluster(t, time.Hour, existing(deleted, epoch), existing(kept, epoch))
	c.start(t, deleted, kept)
	if err := c.Delete(t.Context(), strings.ToLower(deleted), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-c.lost; got != deleted+" the Pod of the sandbox was deleted" {
		t.Errorf("lost %q", got)
	}
	c.pods.Release(kept)
	c.becomes(t)
	terminated := func(container, reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason}}}}
	}
	disrupted := func(reason string, s corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: s, Reason: reason}}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"killed": {corev1.PodStatus{ContainerStatuses: terminated("worker", "OOMKilled")}, "(OOMKilled), oom"},
		"killed, as Kubernetes has seen before": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "worker", LastTerminationState: terminated("", "OOMKilled")[0].State,
		}}}, "(OOMKilled), oom"},
		"other container": {corev1.PodStatus{ContainerStatuses: append(terminated("sidecar", "OOMKilled"), terminated("worker", "Error")...)}, "(Error)"},
		"evicted":         {corev1.PodStatus{Reason: "Evicted", ContainerStatuses: terminated("worker", "OOMKilled")}, "(Evicted)"},
		"preempted":       {corev1.PodStatus{Conditions: disrupted("PreemptionByScheduler", corev1.ConditionTrue), ContainerStatuses: terminated("worker", "Error")}, "(PreemptionByScheduler)"},
		"not preempted":   {corev1.PodStatus{Conditions: disrupted("PreemptionByScheduler", corev1.ConditionFalse), ContainerStatuses: terminated("worker", "Error")}, "(Error)"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			id := worker.NewSuppliedID()
			c := newCluster(t, time.Hour, existing(id, epoch))
			c.start(t, id)
			test.status.Phase = corev1.PodFailed
			c.status(t, id, test.status)
			if got, want := <-c.lost, id+" the Pod of the sandbox has ended "+test.want; got != want {
				t.Errorf("lost %q, want %q", got, want)
			}
			c.becomes(t)
		})
	}
}

// TestRefusedPods has what the API server says to a Pod.
func TestRefusedPods(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		code sandbox.Code
		says string
	}{
		"quota":     {apierrors.NewForbidden(pods, "x", errors.New("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5")), sandbox.QuotaExceeded, "ResourceQuota"},
		"forbidden": {apierrors.NewForbidden(pods, "x", errors.New("no rights")), sandbox.Unavailable, "forbids the Pod"},
		"away":      {errors.New("connection refused"), sandbox.Unavailable, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, time.Hour)
			c.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
			c.start(t)
			w := wanted()
			err := c.pods.Supply(t.Context(), w, nil)
			var told *sandbox.Error
			if !errors.As(err, &told) || told.Code != test.code || !strings.Contains(told.Message, test.says) || !strings.Contains(told.Message, "sbx_1") {
				t.Errorf("Supply() = %v, want %s and %q", err, test.code, test.says)
			}
			if name := strings.ToLower(w.ID); strings.Contains(told.Message, name) || !strings.Contains(err.Error(), name) {
				t.Errorf("Supply() = %v with the message %q, want the name of the Pod in the cause alone", err, told.Message)
			}
		})
	}
}

// TestFailingPods has what becomes of a Pod.
func TestFailingPods(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		says   string
	}{
		"image":  {waiting("ImagePullBackOff"), "cannot pull the image"},
		"config": {waiting("CreateContainerConfigError"), "the template of Pods"},
		"failed": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, "Evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, time.Hour)
			c.start(t)
			w := wanted()
			go c.status(t, w.ID, test.status)
			err := c.pods.Supply(t.Context(), w, nil)
			if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Supply() = %v, want %q", err, test.says)
			}
			c.pods.Release(w.ID)
			c.becomes(t)
		})
	}
}

func TestUnschedulable(t *testing.T) {
	c := newCluster(t, time.Second)
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available"}}
		return false, nil, nil
	})
	c.start(t)
	w := wanted()
	err := c.pods.Supply(t.Context(), w, nil)
	if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "no node of the cluster has space") {
		t.Errorf("Supply() = %v", err)
	}
	c.pods.Release(w.ID)
	c.becomes(t)
}

func TestEndOfARequest(t *testing.T) {
	c := newCluster(t, time.Hour)
	c.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := wanted()
	go func() {
		c.status(t, w.ID, corev1.PodStatus{Phase: corev1.PodPending})
		cancel()
	}()
	if err := c.pods.Supply(ctx, w, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Supply() = %v, want that the request ended", err)
	}
}

// TestNumberOfPods checks that a Pod counts until it is gone, and that the next Pod waits until then.
func TestNumberOfPods(t *testing.T) {
	c := newCluster(t, time.Hour, existing(worker.NewSuppliedID(), epoch-1)) // unknown, and counted
	var failures atomic.Int32
	c.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failures.Add(1) <= 2, nil, errors.New("connection refused")
	})
	c.start(t)
	connected := make(chan struct{})
	close(connected)
	for range 4 {
		w := wanted()
		if err := c.pods.Supply(t.Context(), w, connected); err != nil {
			t.Fatal(err)
		}
		if n := len(c.names(t)); n > 3 {
			t.Errorf("there are %d Pods, want 3 at most", n)
		}
		c.pods.Release(w.ID)
	}
	if n := failures.Load(); n <= 2 {
		t.Errorf("a Pod that was not deleted makes space for another after %d calls", n)
	}
	c.becomes(t)
}

// TestTooManyPods checks the error for a Pod that does not get its turn in time, and that a workspace leaves Pods to others.
func TestTooManyPods(t *testing.T) {
	kept := worker.NewSuppliedID()
	c := newCluster(t, time.Second, existing(kept, epoch-1))
	c.start(t, kept)
	connected := make(chan struct{})
	close(connected)
	supply := func(w sandbox.WorkspaceID) error {
		wanted := wanted()
		wanted.Workspace = w
		return c.pods.Supply(t.Context(), wanted, connected)
	}
	if err := supply("ws_1"); err != nil {
		t.Fatal(err)
	}
	err := supply("ws_1")
	var told *sandbox.Error
	if !errors.As(err, &told) || told.Code != sandbox.Unavailable || !strings.Contains(told.Message, "kubernetes.max_pods") || told.RetryAfter == 0 {
		t.Errorf("Supply() = %v, want unavailable with the setting and when to try again", err)
	}
	c.pods.Claim(kept, "ws_2")
	if err := supply("ws_2"); err == nil {
		t.Error("the Pod of the pool does not count for the workspace whose sandbox has it")
	}
	if err := supply("ws_3"); err != nil {
		t.Errorf("Supply() = %v for another workspace, want the last Pod", err)
	}
	if err := supply(""); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Supply() = %v for the pool, want unavailable", err)
	}
}

// TestPodsOfThePoolGiveWay checks that a sandbox that finds no place gets the place of a Pod of the pool, and that no more Pods give way than sandboxes wait.
func TestPodsOfThePoolGiveWay(t *testing.T) {
	c := newCluster(t, time.Hour)
	c.start(t)
	connected := make(chan struct{})
	close(connected)
	supply := func(ctx context.Context, w sandbox.WorkspaceID) (string, error) {
		wanted := wanted()
		wanted.Workspace = w
		return wanted.ID, c.pods.Supply(ctx, wanted, connected)
	}
	var ids []string
	for _, w := range []sandbox.WorkspaceID{"", "", "ws_2"} {
		id, err := supply(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	pool := ids[:2]
	if got := c.pods.GiveWay(pool); got != "" {
		t.Errorf("GiveWay() = %q while nobody waits", got)
	}
	brief, end := context.WithTimeout(t.Context(), patience)
	defer end()
	if _, err := supply(brief, ""); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Supply() = %v for the pool without a place, want unavailable at once", err)
	}
	select {
	case <-c.pods.Crowded(): // it is said for the pool, too
	default:
	}
	made := make(chan error)
	wait := func(w sandbox.WorkspaceID) func() {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := supply(ctx, w)
			made <- err
		}()
		<-c.pods.Crowded()
		return func() {
			cancel()
			if err := <-made; !errors.Is(err, context.Canceled) {
				t.Errorf("Supply() = %v, want that it was cancelled", err)
			}
		}
	}
	wait("ws_1")
	if got := c.pods.GiveWay(pool); got != pool[0] {
		t.Errorf("GiveWay() = %q, want the first of the pool, %s", got, pool[0])
	}
	if got := c.pods.GiveWay(pool); got != "" {
		t.Errorf("GiveWay() = %q for a sandbox for which another gives way", got)
	}
	c.pods.Release(pool[0])
	if err := <-made; err != nil {
		t.Errorf("Supply() = %v, want the place of the pool", err)
	}
	if n := len(c.names(t)); n != 3 {
		t.Errorf("there are %d Pods, want 3", n)
	}
	cancel := wait("ws_1")
	if got := c.pods.GiveWay(pool); got != "" {
		t.Errorf("GiveWay() = %q for a workspace that has its share", got)
	}
	cancel()
	cancel = wait("ws_3")
	if got := c.pods.GiveWay(ids[2:]); got != "" {
		t.Errorf("GiveWay() = %q, which is of a sandbox", got)
	}
	if got := c.pods.GiveWay(pool); got != pool[1] {
		t.Errorf("GiveWay() = %q, want %s", got, pool[1])
	}
	cancel()
}

// TestStartWithoutAPI checks that a start waits for a list of Pods, and says why there is none.
func TestStartWithoutAPI(t *testing.T) {
	c := newCluster(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	lists := make(chan struct{}, 100)
	c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists <- struct{}{}
		return true, nil, errors.New("no route to host")
	})
	go func() {
		<-lists
		<-lists // the error of the first was noted
		cancel()
	}()
	err := c.pods.Start(ctx, nil, func(string, fleet.Loss) {})
	if err == nil || !strings.Contains(err.Error(), "no route to host") {
		t.Errorf("Start() = %v, want the error of the API server", err)
	}
}
