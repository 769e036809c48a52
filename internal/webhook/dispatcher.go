package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// idle is the longest time between two looks at the store.
	idle = time.Minute
	// A look that took long is followed by a rest that is restFactor times as long, between leastRest
	// and mostRest, so that looks cost little however often commits wake the dispatcher.
	leastRest, mostRest, restFactor = 2 * time.Millisecond, time.Second, 10
	// errorPause is the pause after a failure of the store.
	errorPause = time.Second
	// The store is purged every hour, and after so many deliveries have ended.
	purgeEvery, purgeEnded = time.Hour, 1000
	// dueBatch is the number of deliveries of a webhook that a look considers.
	dueBatch = 16

	firstRetry, lastRetry = 5 * time.Second, 4 * time.Hour
)

// dispatcher sends deliveries that are due.
type dispatcher struct {
	queue     Queue
	sandboxes Sandboxes
	keys      Keys
	sender    *sender
	places    *places
	log       *slog.Logger

	attempted broadcast.Broadcast // sent after every attempt
	freed     broadcast.Broadcast // sent when a place becomes free
	ended     atomic.Int64        // deliveries that have ended since the last purge
	started   atomic.Bool         // else another server makes the attempts

	results  *prometheus.CounterVec
	disabled prometheus.Counter
	pending  prometheus.Gauge

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newDispatcher(queue Queue, sandboxes Sandboxes, keys Keys, s *sender, log *slog.Logger) *dispatcher {
	d := &dispatcher{
		queue: queue, sandboxes: sandboxes, keys: keys, sender: s, places: newPlaces(), log: log,
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modbox_webhook_attempts_total", Help: "Attempts to deliver an event to a webhook, by outcome.",
		}, []string{"outcome"}),
		disabled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modbox_webhooks_disabled_total", Help: "Webhooks that the server disabled, because their receivers are gone or fail.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modbox_webhook_deliveries_pending", Help: "Deliveries to webhooks that wait for an attempt.",
		}),
	}
	for _, outcome := range []Outcome{Success, Retry, GaveUp, Gone} {
		d.results.WithLabelValues(string(outcome)) // so that each is there before its first time
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Collectors returns the metrics.
func (d *dispatcher) Collectors() []prometheus.Collector {
	return []prometheus.Collector{d.results, d.disabled, d.pending}
}

// Start starts to deliver, until [dispatcher.Close]. Of several servers on a database one delivers: places and claims are in its memory.
func (d *dispatcher) Start() {
	d.started.Store(true)
	d.work.Go(d.run)
	d.work.Go(d.clean)
}

// Close ends attempts under way, which the next server repeats, and returns when they have ended.
func (d *dispatcher) Close() {
	d.cancel()
	d.work.Wait()
	d.sender.close()
}

func (d *dispatcher) run() {
	for d.ctx.Err() == nil {
		committed, freed := d.queue.Committed(), d.freed.Wait() // before the look at the store
		begun := time.Now()
		next, err := d.dispatch()
		rest := min(max(restFactor*time.Since(begun), leastRest), mostRest)
		if err != nil {
			d.failed("look for deliveries to webhooks", err)
			rest = errorPause
		}
		if !d.wait(rest, nil, nil) {
			return
		}
		d.wait(next-rest, committed, freed)
	}
}

// wait waits for a time, a commit or a free place; it reports false when the dispatcher ends.
func (d *dispatcher) wait(long time.Duration, committed, freed <-chan struct{}) bool {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-committed:
	case <-freed:
	case <-d.ctx.Done():
		return false
	}
	return true
}

// clean purges the store.
func (d *dispatcher) clean() {
	for up := false; ; up = true {
		d.ended.Store(0)
		now := time.Now()
		var err error
		if up { // after a long absence of the server, deliveries have an hour for an attempt
			err = d.queue.Expire(d.ctx, now.Add(-purgeEvery), now)
		}
		if err == nil {
			err = d.queue.Purge(d.ctx, now.Add(-Retention), MaxKept)
		}
		if err != nil {
			d.failed("purge deliveries to webhooks", err)
		}
		d.places.forget(now)
		for until := now.Add(purgeEvery); ; {
			attempted := d.attempted.Wait()
			if d.ended.Load() >= purgeEnded || time.Now().After(until) {
				break
			}
			if !d.wait(time.Until(until)+time.Millisecond, attempted, nil) {
				return
			}
		}
	}
}

func (d *dispatcher) failed(what string, err error) {
	if d.ctx.Err() == nil {
		d.log.Error(what, "error", err)
	}
}

// dispatch starts attempts for deliveries that are due, and returns the time until others are.
func (d *dispatcher) dispatch() (time.Duration, error) {
	waiting, err := d.queue.Waiting(d.ctx)
	if err != nil {
		return 0, err
	}
	var pending int64
	for _, w := range waiting {
		pending += w.Pending
	}
	d.pending.Set(float64(pending))
	now := time.Now()
	due, next := d.places.due(waiting, now, idle)
	for taken := 0; taken < placesInAll; {
		i := d.places.pick(due)
		if i < 0 {
			return next, nil // a place that becomes free wakes run
		}
		under := d.places.underWayTo(due[i].Webhook) // before the look, which may not see how these attempts end
		w, list, err := d.queue.Due(d.ctx, due[i].Webhook, now, dueBatch)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return 0, err
		}
		list = slices.DeleteFunc(list, func(v Delivery) bool { return slices.Contains(under, v.ID) })
		v, release, ok := d.places.take(due[i], list)
		if !ok { // the deliveries are under way, or were a moment ago
			due = slices.Delete(due, i, i+1)
			continue
		}
		taken++
		d.work.Go(func() {
			d.deliver(&w, &v)
			release()
			d.freed.Send()
		})
	}
	return 0, nil // other webhooks may be due by now
}

// deliver makes an attempt and records it.
func (d *dispatcher) deliver(w *Webhook, v *Delivery) {
	if v.Event.Sandbox != "" { // a receiver that looks at the sandbox sees the change
		d.sandboxes.Settle(v.Event.Sandbox)
	}
	now := time.Now().UTC()
	r, err := d.attempt(w, v, now)
	if err != nil {
		r = result{err: "the secret of the webhook cannot be read; rotate it"}
		d.failed("sign a delivery to a webhook", fmt.Errorf("webhook %s: %w", w.ID, err))
	}
	if d.ctx.Err() != nil {
		return // the next server repeats it
	}
	d.places.attempted(w.ID, r, time.Now())
	o := v.attempted(r, now)
	d.results.WithLabelValues(string(o)).Inc()
	var disabled bool
	err = retry.Persist(d.ctx, d.log, "record a delivery to a webhook", func() (err error) {
		disabled, err = d.queue.Record(d.ctx, *v, o)
		return err
	})
	if err != nil {
		return // the dispatcher ends
	}
	if disabled {
		d.disabled.Inc()
		d.log.Warn("a webhook is disabled", "webhook", w.ID, "workspace", w.Workspace, "status", r.status, "reason", r.err)
	}
	if o != Retry {
		d.ended.Add(1)
	}
	d.attempted.Send()
}

// attempt signs and sends a delivery.
func (d *dispatcher) attempt(w *Webhook, v *Delivery, now time.Time) (result, error) {
	content, err := body(v)
	if err != nil {
		return result{}, err
	}
	text, err := d.keys.Unseal(w.Secret, current(w.ID))
	if err != nil {
		return result{}, err
	}
	signature, err := sign(text, v.ID, now, content)
	if err != nil {
		return result{}, err
	}
	signatures := []string{signature}
	if now.Before(w.OldUntil) {
		if text, err = d.keys.Unseal(w.OldSecret, former(w.ID)); err == nil {
			signature, err = sign(text, v.ID, now, content)
			signatures = append(signatures, signature)
		}
		if err != nil {
			return result{}, err
		}
	}
	return d.sender.send(d.ctx, w.URL, v.ID, now, signatures, content), nil
}

// attempted changes a delivery after an attempt, and returns what it means for its webhook.
func (v *Delivery) attempted(r result, now time.Time) Outcome {
	v.Attempts++
	v.AttemptedAt, v.Status, v.Duration, v.Error, v.Response = now, r.status, r.duration, r.err, r.response
	end := func(s State) { v.State, v.EndedAt = s, now.Add(r.duration) }
	v.NextAttemptAt = now.Add(r.duration + interval(firstRetry, lastRetry, int(v.Attempts)))
	switch {
	case r.err == "":
		end(Delivered)
		return Success
	case r.status == http.StatusGone:
		end(Failed)
		return Gone
	case v.NextAttemptAt.After(v.RetryUntil):
		end(Failed)
		return GaveUp
	}
	return Retry
}
