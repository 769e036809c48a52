package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/sandbox"
)

// recoverPage is the number of operations of a killed server that are recorded at once.
const recoverPage = 500

// run writes until the log is closed, and then the rest of the queue.
func (l *Log) run() {
	defer close(l.finished)
	perMinute, nextCut := time.NewTicker(minute), time.NewTimer(untilCut(l.cut(false)))
	defer perMinute.Stop()
	defer nextCut.Stop()
	full := false // the next cut goes on with one of a full log
	for {
		select {
		case <-l.urgent:
			if l.drain() {
				full = true
				nextCut.Reset(cutPause)
			}
		case <-perMinute.C:
			l.writeRefused()
		case <-nextCut.C:
			more := l.cut(full)
			full = full && more
			nextCut.Reset(untilCut(more))
		case <-l.ctx.Done():
			l.writeRefused()
			l.drain()
			return
		}
	}
}

// drain writes the queue, a batch at a time. It reports whether the log is full and its cut must go on.
func (l *Log) drain() (more bool) {
	for {
		l.mu.Lock()
		n := min(len(l.queue), batchMax)
		items := l.queue[:n:n]
		if l.queue = l.queue[n:]; len(l.queue) == 0 {
			l.queue = nil // to free the memory of a long queue
		}
		l.mu.Unlock()
		if n == 0 {
			return more
		}
		more = l.write(items)
	}
}

// write writes a batch and notifies the waiters. It syncs at most once for the whole batch. If the log is full, write
// cuts at least as many words as the batch has, and reports whether there is more to cut.
func (l *Log) write(items []item) (more bool) {
	l.writing.Store(time.Now().UnixNano())
	defer l.writing.Store(0)
	var change Change
	var records []*Record
	durable := false
	for _, it := range items {
		if it.begun != nil {
			change.Begun = append(change.Begun, *it.begun)
		}
		if it.record != nil {
			records = append(records, it.record)
		}
		if it.ended != "" {
			change.Ended = append(change.Ended, it.ended)
		}
		durable = durable || it.synced
	}
	chain, ok := l.change(&change, records, durable)
	if !ok {
		return false
	}
	for _, it := range items {
		if it.written != nil {
			close(it.written)
		}
	}
	if l.cfg.MaxBytes == 0 || chain.Bytes <= l.cfg.MaxBytes {
		return false
	}
	more = true
	for cuts := 1 + len(records)*wordsMax/cutWords; more && cuts > 0; cuts-- {
		more = l.cut(true)
	}
	return more
}

// change changes the log and appends records. It retries until the log is closed, and once after
// that. It reports whether the change is written; with durable it also survives a loss of power.
func (l *Log) change(change *Change, records []*Record, durable bool) (Chain, bool) {
	if len(change.Begun)+len(change.Ended)+len(records) == 0 {
		return Chain{}, true
	}
	change.Records, change.Durable = records, durable
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = retryMin, retryMax
	var chain Chain
	_, err := backoff.Retry(l.ctx, func() (_ struct{}, err error) {
		chain, err = l.store.ChangeAudit(context.WithoutCancel(l.ctx), change)
		l.full.set(errors.Is(err, sandbox.ErrNoSpace))
		if err != nil && !l.failing.Swap(true) {
			l.logger.Error("audit log not written; operations are refused until it is", "error", err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	if err != nil {
		l.logger.Error("audit records not written: their operations will be recorded as interrupted when the server starts again", "records", len(records), "error", err)
		return Chain{}, false
	}
	if l.failing.Swap(false) {
		l.logger.Info("audit log written again")
	}
	return chain, true
}

// add writes records of the log itself.
func (l *Log) add(records ...*Record) {
	for _, r := range records {
		stamp(r, time.Now())
	}
	l.change(&Change{}, records, false)
}

// writeRefused records the counts of refusals of the past minute.
func (l *Log) writeRefused() { l.add(l.limit.next()...) }

// Recover records the unfinished operations of a killed server as [Interrupted]. Only the server of the
// shards may call it, before any operation: the intents in other shards may be of operations of other servers.
func (l *Log) Recover(ctx context.Context) error {
	for {
		intents, err := l.store.AuditIntents(ctx, recoverPage)
		if err != nil || len(intents) == 0 {
			return err
		}
		change := Change{}
		for _, i := range intents {
			r := &Record{}
			if err := json.Unmarshal(i.Record, r); err != nil { // damaged by somebody, which must be visible
				r = &Record{Action: "unknown", Details: map[string]string{"intent": text(string(i.Record), detailMax)}}
			}
			r.Outcome = Interrupted
			detail(r, "begun", r.Time)
			stamp(r, time.Now())
			r.DurationMS = 0
			change.Records = append(change.Records, r)
			change.Ended = append(change.Ended, i.ID)
		}
		if _, err := l.store.ChangeAudit(ctx, &change); err != nil {
			return fmt.Errorf("record interrupted operations: %w", err)
		}
	}
}

// untilCut returns the time until the next cut; more says that the cut before may have left more to remove.
func untilCut(more bool) time.Duration {
	if more {
		return cutPause
	}
	return hour
}

// cut removes records that are too old, or, with full, too many, within the bounds of a cut. It reports
// whether there may be more to remove. It does nothing while the log is being verified.
func (l *Log) cut(full bool) (more bool) {
	if !l.whole.TryLock() {
		return true
	}
	defer l.whole.Unlock()
	what := Cut{MaxBytes: l.cfg.MaxBytes, Limit: cutRows, Words: cutWords}
	if full {
		what.MaxBytes -= what.MaxBytes / cutPart
	}
	if l.cfg.Retention > 0 {
		what.Before = time.Now().Add(-l.cfg.Retention)
	}
	n, more, err := l.store.CutAudit(context.WithoutCancel(l.ctx), what)
	if err != nil {
		l.logger.Error("audit log not cut", "error", err)
		return false
	}
	if n == 0 {
		return false
	}
	l.add(&Record{Action: ActionCut, Outcome: OK, Details: map[string]string{"records": strconv.Itoa(n)}})
	return more
}
