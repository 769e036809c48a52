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
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Config configures [Pods].
type Config struct {
	Client    Client
	Namespace string // of the client
	Template  *corev1.PodTemplateSpec
	// MaxPods bounds the number of Pods, including Pods that are being deleted.
	MaxPods int
	// MemoryOverhead and DiskOverhead are the memory and disk space of a Pod beside the resources of its box.
	MemoryOverhead, DiskOverhead int64
	// StartTimeout bounds the time until the worker of a new Pod is connected.
	StartTimeout time.Duration
	Log          *slog.Logger
}

const (
	// callTimeout bounds a call to the API server.
	callTimeout = 15 * time.Second
	// listTimeout bounds the wait for the first list of Pods. A server that ends then is started again by Kubernetes.
	listTimeout = time.Minute
	// deletePause is the time until a Pod that was deleted, and is still there, is deleted again.
	deletePause = time.Minute
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

	mu   sync.Mutex
	pods map[string]state        // guarded by mu; the Pods that may exist, by the ids of their workers
	lost func(id, reason string) // set by Start
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
	p := &Pods{cfg: cfg, pods: map[string]state{}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second))}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Start implements [fleet.Supplier]. It waits for the API server.
func (p *Pods) Start(ctx context.Context, keep []string, lost func(id, reason string)) error {
	for _, id := range keep {
		p.pods[id] = podConnected
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
			p.lose(id, "the Pod "+podName(id)+" was deleted while the server was away")
		}
	}
	return nil
}

// informer watches the Pods of the template.
func (p *Pods) informer() cache.SharedIndexInformer {
	labels := selector(p.cfg.Template)
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
	p.mu.Lock()
	was := p.pods[id]
	switch {
	case was == podStarting || !worker.Supplied(id):
	case deleted:
		delete(p.pods, id)
	case was == 0: // of a server that ended before it was recorded
		was = podReleased
		p.pods[id] = was
	}
	p.mu.Unlock()
	switch {
	case was == podConnected && deleted:
		p.lost(id, "the Pod "+pod.Name+" of the sandbox was deleted")
	case was == podConnected && ended(pod):
		p.lose(id, endOf(pod))
	case was == podReleased && !deleted && pod.DeletionTimestamp == nil:
		p.queue.Add(id)
	}
}

// lose reports the end of a worker, and has its Pod deleted.
func (p *Pods) lose(id, reason string) {
	p.Release(id)
	p.lost(id, reason)
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
	if err := p.reserve(w); err != nil {
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
		if err := failure(podName(w.ID), pod, known); err != nil {
			return err
		}
		select {
		case <-connected:
			p.mu.Lock()
			p.pods[w.ID] = podConnected
			p.mu.Unlock()
			return failure(podName(w.ID), p.get(w.ID), known) // seen reports what comes after
		case <-next:
		case <-ctx.Done():
			if context.Cause(ctx) == errSlow {
				return tooSlow(podName(w.ID), pod)
			}
			return context.Cause(ctx)
		}
	}
}

// reserve counts the Pod of a worker, if the server may make another.
func (p *Pods) reserve(w fleet.Wanted) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pods) >= p.cfg.MaxPods {
		return sandbox.Errorf(sandbox.Unavailable, "the server has %d Pods and makes no more for sandbox %s; try again when sandboxes have ended or paused, or ask an administrator to raise kubernetes.max_pods", len(p.pods), w.Box.ID)
	}
	p.pods[w.ID] = podStarting
	return nil
}

// Release implements [fleet.Supplier].
func (p *Pods) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[id] != 0 { // else it is gone, or was never made
		p.pods[id] = podReleased
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
	gone := p.pods[id] == 0
	p.mu.Unlock()
	if gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.life, callTimeout)
	defer cancel()
	grace := int64(1)
	err := p.cfg.Client.Delete(ctx, podName(id), metav1.DeleteOptions{GracePeriodSeconds: &grace})
	switch {
	case apierrors.IsNotFound(err):
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pods, id)
		return nil
	case err == nil:
		p.queue.AddAfter(id, deletePause)
	}
	return err
}

// refused returns the error for a Pod that was not made, or that may not have been made.
func (p *Pods) refused(ctx context.Context, w fleet.Wanted, err error) error {
	name := podName(w.ID)
	switch {
	case ctx.Err() != nil && context.Cause(ctx) != errSlow:
		return context.Cause(ctx)
	case isQuota(err):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "the namespace has no quota left for the Pod %s of sandbox %s; try again when sandboxes have ended or paused, or ask an administrator for a larger ResourceQuota", name, w.Box.ID)
	case apierrors.IsForbidden(err):
		return sandbox.Wrap(sandbox.Unavailable, err, "the cluster forbids the Pod %s of sandbox %s; an administrator finds the reason in the log", name, w.Box.ID)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return sandbox.Wrap(sandbox.Unavailable, err, "the cluster does not accept the Pod %s of sandbox %s; an administrator finds the reason in the log", name, w.Box.ID)
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the API server of Kubernetes does not answer for the Pod %s of sandbox %s; try again", name, w.Box.ID)
}
