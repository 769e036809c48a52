package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// writeTimeout is the timeout of writes of SQLite.
	writeTimeout = 15 * time.Second
	// maxBatch bounds the writes that share a transaction, and with it the wait of the
	// first for the last.
	maxBatch = 64
)

// A change is a write in the queue, in a batch, or done.
type change struct {
	f    func(context.Context, *sql.Tx) error
	lazy bool          // the write may return before it is on the disk
	lead chan struct{} // closed when its caller must commit the next batch
	done chan struct{} // closed when err and panicked are final
	err  error
	// panicked is the value that f panicked with: the panic continues in the goroutine that
	// called write with f, not in the goroutine that committed the batch.
	panicked any
}

// batches groups the writes that arrive while the disk is busy into the next commit, which
// waits for the disk once for all of them. The caller of one of these writes is the leader
// and commits the batch; there is no goroutine for it.
type batches struct {
	mu      sync.Mutex
	waiting []*change // in no batch yet, in the order of arrival; guarded by mu
	led     bool      // some caller leads; guarded by mu

	// syncs counts the commits that waited for the disk.
	syncs atomic.Int64
}

// Write runs f in a transaction, which keeps the changes of f if f returns nil and rolls
// them back otherwise. If Write returns nil, the changes of f are on the disk. The package
// comment has the rules for ctx and f.
func (d *DB) Write(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	return d.change(ctx, &change{f: f})
}

// Note is Write for changes that a loss of power may undo: it does not wait for the disk,
// unless its batch has a write that does.
func (d *DB) Note(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	return d.change(ctx, &change{f: f, lazy: true})
}

// change commits c, and repeats that if the disk was full and release made space.
func (d *DB) change(ctx context.Context, c *change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := d.engine.explain(d.retry(func() error {
		c.err = nil
		return d.attempt(ctx, c)
	}))
	if errors.Is(err, context.DeadlineExceeded) && sandbox.CodeOf(err) == sandbox.Internal { // the deadline of the write, not of ctx
		return unavailable(err, "the database is busy")
	}
	return err
}

// attempt commits c once.
func (d *DB) attempt(ctx context.Context, c *change) error {
	c.lead, c.done = make(chan struct{}), make(chan struct{})
	if !d.batches.add(c) {
		if led, err := d.batches.wait(c, d.timeout); !led {
			return err
		}
	}
	defer d.batches.handOver()
	d.commit(context.WithoutCancel(ctx), d.batches.take())
	return c.result()
}

// add appends c to the queue and reports whether its caller is the leader.
func (b *batches) add(c *change) (leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, c)
	leads = !b.led
	b.led = true
	return leads
}

// wait waits until c is done and returns its result, or until its caller must lead. If c
// waits too long, wait removes it from the queue.
func (b *batches) wait(c *change, most time.Duration) (leads bool, err error) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-c.done:
		return false, c.result()
	case <-c.lead:
		return true, nil
	case <-timeout.C:
	}
	if b.withdraw(c) {
		return false, fmt.Errorf("begin: %w", context.DeadlineExceeded)
	}
	select {
	case <-c.done:
		return false, c.result()
	case <-c.lead:
		return true, nil
	}
}

// withdraw removes c from the queue, unless c is in a batch or its caller must lead the next batch.
func (b *batches) withdraw(c *change) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.lead:
		return false
	default:
	}
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// take returns the next batch, which begins with the leader's change.
func (b *batches) take() []*change {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// handOver makes the caller of the first change in the queue the leader of the next batch.
func (b *batches) handOver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.led = len(b.waiting) > 0; b.led {
		close(b.waiting[0].lead)
	}
}

// commit runs a batch in one transaction and sets the results of all its changes.
func (d *DB) commit(ctx context.Context, batch []*change) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	begin := time.Now()
	err := d.engine.persist(ctx, func() error { return d.transact(ctx, batch) })
	d.metrics.committed(begin, len(batch), err)
	for _, c := range batch {
		if c.err == nil && c.panicked == nil {
			c.err = err
		}
		close(c.done)
	}
}

// transact runs a batch. An error means that it rolled back all changes of the batch.
func (d *DB) transact(ctx context.Context, batch []*change) (err error) {
	lazy := !slices.ContainsFunc(batch, func(c *change) bool { return !c.lazy })
	t, err := d.engine.begin(ctx, lazy)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer t.end()
	kept := false
	for _, c := range batch {
		c.err, c.panicked = nil, nil // of an attempt before
		if len(batch) == 1 {         // a failure rolls back the whole transaction
			c.run(ctx, t.tx)
		} else if err := c.runApart(ctx, t.tx); err != nil {
			return err
		}
		if d.engine.passing(c.err) {
			return c.err
		}
		kept = kept || c.kept()
	}
	if !kept {
		return nil
	}
	var reached installation.Identity
	if !lazy {
		if reached, err = advance(ctx, t.tx); err != nil {
			return err
		}
	}
	lost := t.tx.Commit()
	if lost != nil {
		if err := d.engine.committed(ctx, t.id, lost); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	d.committed.Send()
	if !lazy {
		d.batches.syncs.Add(1)
		d.reached.Store(&reached)
		if lost == nil { // else a host before has it as well
			d.host.committed()
		}
		if d.advanced != nil {
			d.advanced(reached.Generation)
		}
	}
	return nil
}

// runApart runs c in a savepoint, so that its failure does not affect the rest. After an
// error the transaction cannot continue: SQLite rolls it back when the disk is full or fails, and PostgreSQL
// when the connection is lost.
func (c *change) runApart(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT change"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	c.run(ctx, tx)
	if !c.kept() {
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT change"); err != nil {
			var reason *sqlite.Error
			if errors.As(c.err, &reason) { // but not an error code of ours, which c's caller gets
				err = reason
			}
			return fmt.Errorf("undo another write of the transaction: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT change"); err != nil {
		return fmt.Errorf("end a write of the transaction: %w", err)
	}
	return nil
}

// run calls f and stores its result.
func (c *change) run(ctx context.Context, tx *sql.Tx) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked = fmt.Sprintf("%v\n\nin a write to the database:\n%s", v, debug.Stack())
		}
	}()
	c.err = c.f(ctx, tx)
}

func (c *change) kept() bool { return c.err == nil && c.panicked == nil }

// result returns the result of a change that is done.
func (c *change) result() error {
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}
