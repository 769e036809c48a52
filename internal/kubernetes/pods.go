package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Config configures [Pods].
type Config struct {
	Client    Client
	Namespace string // of the client
	Template  *corev1.PodTemplateSpec
	// Installation and Epoch are the installation of the server and the generation of its database: no server deletes a Pod of another
	// installation, nor a Pod that a later server has made.
	Installation string
	Epoch        int64
	// Own are the ranges of shards of the server, if several servers are active at the same time: it sees the Pods that were made for sandboxes of these ranges
	// alone. Zero: it is the only server.
	Own sandbox.Ranges
	// Join is the address at which the workers of new Pods find this server first; "" if the template has it.
	Join string
	// Current returns an error if another server may have taken over. It is called before each deletion of a Pod.
	Current func(context.Context) error
	// Token returns the token with which a worker joins.
	Token func(id string) string
	// MaxPods bounds the number of Pods, including Pods that are being deleted. A workspace gets twice as many as it leaves free, and at least one.
	MaxPods int
	// MemoryOverhead and DiskOverhead are the memory and disk space of a Pod beside the resources of its box.
	MemoryOverhead, DiskOverhead int64
	// StartTimeout bounds the time until the worker of a new Pod is connected, and before that the wait for another Pod to be gone.
	StartTimeout time.Duration
	Log          *slog.Logger
}

const (
	// callTimeout bounds a call to the API server.
	callTimeout = 15 * time.Second
	// listTimeout bounds the wait for the first list of Pods. A server that ends then is started again by Kubernetes.
	listTimeout = time.Minute
	// givePause is the time after which another box of the pool gives way to a sandbox that waits, if the Pod of the one before is not gone.
	givePause = 10 * time.Second
	// deletePause is the time until a Pod that was deleted, and is still there, is deleted again.
	deletePause = time.Minute
	// retryAfter is the delay suggested when there are too many Pods.
	retryAfter = 30 * time.Second
	// deleters is the number of Pods that are deleted at the same time.
	deleters = 8
)

// Pods makes and deletes Pods. It is safe for concurrent use.
type Pods struct {
	cfg   Config
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	queue workqueue.TypedRateLimitingInterface[string] // ids of workers whose Pods are to be deleted
	store cache.Indexer                                // the Pods as Kubernetes has them; set by Start

	changed broadcast.Broadcast // a Pod has changed
	places  *fairsem.Semaphore  // each Pod has a place until it is gone
	crowded chan struct{}       // receives when a sandbox waits for a place
	later   sync.Once           // logs that there is a Pod of a later server

	mu   sync.Mutex
	pods map[string]*entry               // guarded by mu; the Pods that may exist, by the ids of their workers
	lost func(id string, how fleet.Loss) // set by Start
}

// entry is a Pod for this server. [Pods.mu] guards it.
type entry struct {
	state     state
	workspace sandbox.WorkspaceID // "" is the server
	release   func()              // gives its place back; nil if it has none
	gives     time.Time           // when its box began to give way to a sandbox; zero: it does not
}

// state is the state of a Pod for this server.
type state int

const (
	podStarting  state = iota + 1 // Supply waits for its worker
	podConnected                  // its worker has connected
	podReleased                   // it is to be deleted
)

var _ fleet.Supplier = (*Pods)(nil)

// New returns a supplier of Pods.
func New(cfg Config) *Pods {
	p := &Pods{cfg: cfg, pods: map[string]*entry{}, places: fairsem.NewShared(cfg.MaxPods), crowded: make(chan struct{}, 1), queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second))}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Start implements [fleet.Supplier]. It waits for the API server.
func (p *Pods) Start(ctx context.Context, keep []string, lost func(id string, how fleet.Loss)) error {
	for _, id := range keep {
		p.pods[id] = &entry{state: podConnected}
	}
	p.lost = lost
	informer := p.informer()
	p.store = informer.GetIndexer()
	var last atomic.Value // the last error of the watch
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		last.Store(err.Error())
		if p.life.Err() == nil {
			p.cfg.Log.Error("Pods cannot be watched, trying again", "error", err)
		}
	}); err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.seen(obj, false) },
		UpdateFunc: func(_, obj any) { p.seen(obj, false) },
		DeleteFunc: func(obj any) { p.seen(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	p.work.Go(func() { informer.RunWithContext(p.life) })
	for range deleters {
		p.work.Go(p.deleteQueued)
	}
	context.AfterFunc(p.life, p.queue.ShutDown)
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		return fmt.Errorf("list Pods: %w (the last answer of Kubernetes: %v)", ctx.Err(), last.Load())
	}
	for _, id := range keep {
		if p.get(id) == nil {
			p.lose(id, fleet.Loss{Reason: "the Pod of the sandbox was deleted while the server was away"})
		}
	}
	return nil
}

// informer watches the Pods of the template and the installation.
func (p *Pods) informer() cache.SharedIndexInformer {
	labels := p.selector()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = labels
			return p.cfg.Client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = labels
			return p.cfg.Client.Watch(ctx, o)
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, p.cfg.Client), &corev1.Pod{}, 0, cache.Indexers{})
}

// Close implements [fleet.Supplier].
func (p *Pods) Close() {
	p.end()
	p.work.Wait()
}

// seen notes how a Pod is now.
func (p *Pods) seen(obj any, deleted bool) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	p.changed.Send()
	id := pod.Labels[workerLabel]
	if !worker.Supplied(id) {
		return
	}
	was := p.note(id, pod, deleted)
	switch {
	case was == podConnected && deleted:
		p.lost(id, lossOf(pod, "was deleted"))
	case was == podConnected && ended(pod):
		p.lose(id, lossOf(pod, "has ended"))
	case was == podReleased && !deleted && pod.DeletionTimestamp == nil:
		p.queue.Add(id)
	}
}

// note records a Pod as it is now, and returns the state that it had; 0 for a Pod of a later server.
func (p *Pods) note(id string, pod *corev1.Pod, deleted bool) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[id]
	if e == nil {
		if epochOf(pod) > p.cfg.Epoch {
			p.later.Do(func() {
				p.cfg.Log.Warn("this server does not touch a Pod that a later server has made", "pod", pod.Name)
			})
			return 0
		}
		if deleted {
			return 0
		}
		e = &entry{state: podReleased} // of a server that ended before it was recorded
		p.pods[id] = e
	}
	if e.release == nil && e.state != podStarting {
		p.count(e, sandbox.WorkspaceID(pod.Labels[workspaceLabel])) // an earlier server may have had more
	}
	was := e.state
	if deleted && was != podStarting {
		p.forget(id)
	}
	return was
}

// count has a Pod count for a workspace.
//
// Preconditions: p.mu is held.
func (p *Pods) count(e *entry, w sandbox.WorkspaceID) {
	before := e.release
	e.workspace, e.release = w, p.places.Add(w)
	if before != nil {
		before()
	}
}

// Claim implements [fleet.Supplier]. The workspace may have more than its share by that, and gets no other Pod then.
func (p *Pods) Claim(id string, w sandbox.WorkspaceID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.pods[id]; e != nil && e.workspace != w {
		p.count(e, w)
		e.gives = time.Time{}
	}
}

// Crowded implements [fleet.Supplier].
func (p *Pods) Crowded() <-chan struct{} { return p.crowded }

// crowd says that a sandbox waits.
func (p *Pods) crowd() {
	select {
	case p.crowded <- struct{}{}:
	default:
	}
}

// GiveWay implements [fleet.Supplier]: a Pod of the pool gives way for each sandbox that could have its place.
func (p *Pods) GiveWay(ids []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lacking := p.places.Lacking()
	for _, e := range p.pods {
		if time.Since(e.gives) < givePause {
			lacking--
		}
	}
	if lacking <= 0 {
		return ""
	}
	for _, id := range ids {
		if e := p.pods[id]; e != nil && e.state == podConnected && e.workspace == "" && e.gives.IsZero() {
			e.gives = time.Now()
			return id
		}
	}
	return ""
}

// forget forgets a Pod, which does not exist.
//
// Preconditions: p.mu is held.
func (p *Pods) forget(id string) {
	if e := p.pods[id]; e != nil && e.release != nil {
		e.release()
	}
	delete(p.pods, id)
}

// lose reports the end of a worker, and has its Pod deleted.
func (p *Pods) lose(id string, how fleet.Loss) {
	p.Release(id)
	p.lost(id, how)
}

// get returns the Pod of a worker as Kubernetes had it last; nil if there is none.
func (p *Pods) get(id string) *corev1.Pod {
	obj, found, err := p.store.GetByKey(p.cfg.Namespace + "/" + podName(id))
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.Pod)
}

// Supply implements [fleet.Supplier].
func (p *Pods) Supply(ctx context.Context, w fleet.Wanted, connected <-chan struct{}) error {
	if err := p.reserve(ctx, w); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartTimeout, errSlow)
	defer cancel()
	call, done := context.WithTimeout(ctx, callTimeout)
	_, err := p.cfg.Client.Create(call, p.pod(w), metav1.CreateOptions{})
	done()
	if err != nil {
		return p.refused(ctx, w, err)
	}
	known := false // the watch has had it
	for {
		next := p.changed.Wait()
		pod := p.get(w.ID)
		known = known || pod != nil
		if err := failure(w, pod, known); err != nil {
			return err
		}
		select {
		case <-connected:
			p.mu.Lock()
			if e := p.pods[w.ID]; e != nil { // else it was released, and is gone
				e.state = podConnected
			}
			p.mu.Unlock()
			return failure(w, p.get(w.ID), known) // seen reports what comes after
		case <-next:
		case <-ctx.Done():
			if context.Cause(ctx) == errSlow {
				return tooSlow(w, pod)
			}
			return context.Cause(ctx)
		}
	}
}

// reserve waits until the workspace may have another Pod, and counts the Pod of a worker.
func (p *Pods) reserve(ctx context.Context, w fleet.Wanted) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartTimeout, errSlow)
	defer cancel()
	wait := ctx
	if w.Workspace == "" { // a box of the pool is less urgent than the work behind it
		var end context.CancelCauseFunc
		wait, end = context.WithCancelCause(ctx)
		end(errSlow)
	}
	var again *time.Timer
	release, err := p.places.Acquire(wait, w.Workspace, func() {
		p.crowd()
		again = time.AfterFunc(givePause, p.crowd)
	})
	if again != nil {
		again.Stop()
	}
	switch {
	case err != nil && context.Cause(wait) == errSlow:
		e := sandbox.Errorf(sandbox.Unavailable, "there is no Pod for sandbox %s: the server has %d at most, and a workspace at most twice as many as it leaves free; try again when sandboxes have ended or paused, or ask an administrator to raise kubernetes.max_pods", w.Box.ID, p.cfg.MaxPods)
		e.RetryAfter = retryAfter
		return e
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[w.ID] = &entry{state: podStarting, workspace: w.Workspace, release: release}
	return nil
}

// Release implements [fleet.Supplier].
func (p *Pods) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.pods[id]; e != nil { // else it is gone, or was never made
		e.state = podReleased
		p.queue.Add(id)
	}
}

// deleteQueued deletes Pods until the queue is shut down.
func (p *Pods) deleteQueued() {
	for {
		id, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.delete(id); err != nil && p.life.Err() == nil {
			p.cfg.Log.Error("a Pod is not deleted, trying again", "pod", podName(id), "error", err)
			p.queue.AddRateLimited(id)
		} else {
			p.queue.Forget(id)
		}
		p.queue.Done(id)
	}
}

// delete deletes the Pod of a worker, whose box has been destroyed or is lost, and looks after it later: the watch may miss its end.
func (p *Pods) delete(id string) error {
	p.mu.Lock()
	gone := p.pods[id] == nil
	p.mu.Unlock()
	if gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.life, callTimeout)
	defer cancel()
	if err := p.cfg.Current(ctx); err != nil {
		return err
	}
	grace := int64(1)
	err := p.cfg.Client.Delete(ctx, podName(id), metav1.DeleteOptions{GracePeriodSeconds: &grace})
	switch {
	case apierrors.IsNotFound(err):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(id)
		return nil
	case err == nil:
		p.queue.AddAfter(id, deletePause)
	}
	return err
}

// refused returns the error for a Pod that was not made, or that may not have been made.
func (p *Pods) refused(ctx context.Context, w fleet.Wanted, err error) error {
	switch {
	case ctx.Err() != nil && context.Cause(ctx) != errSlow:
		return context.Cause(ctx)
	case isQuota(err):
		return podError(w, sandbox.QuotaExceeded, err, "the namespace has no quota left for the Pod of sandbox %s; try again when sandboxes have ended or paused, or ask an administrator for a larger ResourceQuota", w.Box.ID)
	case apierrors.IsForbidden(err):
		return podError(w, sandbox.Unavailable, err, "the cluster forbids the Pod of sandbox %s; an administrator finds the reason in the log", w.Box.ID)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return podError(w, sandbox.Unavailable, err, "the cluster does not accept the Pod of sandbox %s; an administrator finds the reason in the log", w.Box.ID)
	}
	return podError(w, sandbox.Unavailable, err, "the API server of Kubernetes does not answer for the Pod of sandbox %s; try again", w.Box.ID)
}
