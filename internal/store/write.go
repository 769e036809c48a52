package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

const (
	// writeTimeout bounds the wait of a write for its turn, and then its transaction.
	writeTimeout = 15 * time.Second
	// maxBatch bounds the writes that share a transaction, and with it the wait of the
	// first for the last.
	maxBatch = 64
)

// A change is a write that waits for its turn, or has had it.
type change struct {
	f    func(context.Context, *sql.Tx) error
	lazy bool          // need not be on the disk when it is done
	lead chan struct{} // closed when its caller must commit the next batch
	done chan struct{} // closed when err and panicked are final
	err  error
	// panicked is the value that f panicked with: its own caller must see the panic,
	// and not another that happened to commit the batch.
	panicked any
}

// batches lets writes that come while the disk is busy share the next commit, which
// waits for the disk once for all of them. The caller of one of them, its leader,
// commits a batch; there is no goroutine for it.
type batches struct {
	mu      sync.Mutex
	waiting []*change // in no batch yet, the first to come first; guarded by mu
	led     bool      // some caller leads; guarded by mu

	// syncs counts the commits that waited for the disk.
	syncs atomic.Int64
}

// write runs f in a transaction of which f's part is kept when f returns nil and
// undone otherwise. When it returns nil, what f wrote is on the disk. See the package
// comment about ctx and about what f must not do.
func (s *Store) write(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	return s.change(ctx, &change{f: f})
}

// note is write for what may be lost when the machine loses power: it does not wait
// for the disk, unless a write that does shares its transaction.
func (s *Store) note(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	return s.change(ctx, &change{f: f, lazy: true})
}

// change has c committed, again where the disk was full and space was made.
func (s *Store) change(ctx context.Context, c *change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.retry(func() error {
		c.err = nil
		return s.attempt(ctx, c)
	})
}

// attempt has c committed once.
func (s *Store) attempt(ctx context.Context, c *change) error {
	c.lead, c.done = make(chan struct{}), make(chan struct{})
	if !s.batches.add(c) {
		if led, err := s.batches.wait(c); !led {
			return err
		}
	}
	defer s.batches.handOver()
	s.commit(context.WithoutCancel(ctx), s.batches.take())
	return c.result()
}

// add puts c last and reports whether its caller leads.
func (b *batches) add(c *change) (leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, c)
	leads = !b.led
	b.led = true
	return leads
}

// wait waits until c is done, whose result it returns, or its caller must lead. A
// change whose turn does not come in time is taken back.
func (b *batches) wait(c *change) (leads bool, err error) {
	timeout := time.NewTimer(writeTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
		return false, c.result()
	case <-c.lead:
		return true, nil
	case <-timeout.C:
	}
	if b.withdraw(c) {
		return false, fmt.Errorf("begin: the database is busy: %w", context.DeadlineExceeded)
	}
	select {
	case <-c.done:
		return false, c.result()
	case <-c.lead:
		return true, nil
	}
}

// withdraw takes c back, unless it is in a batch or its caller must lead the next one.
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

// take returns the next batch. The leader's change is its first.
func (b *batches) take() []*change {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// handOver has the first that waits lead the next batch.
func (b *batches) handOver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.led = len(b.waiting) > 0; b.led {
		close(b.waiting[0].lead)
	}
}

// commit runs a batch in one transaction and settles all its changes.
func (s *Store) commit(ctx context.Context, batch []*change) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := s.transact(ctx, batch)
	for _, c := range batch {
		if c.err == nil && c.panicked == nil {
			c.err = err
		}
		close(c.done)
	}
}

// transact runs a batch. An error is of the whole: nothing of the batch was kept.
func (s *Store) transact(ctx context.Context, batch []*change) (err error) {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = conn.Close() }() // returns it, and fails only when that was done
	lazy := !slices.ContainsFunc(batch, func(c *change) bool { return !c.lazy })
	if lazy {
		if err := hurry(ctx, conn); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer calm(conn)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	kept := false
	for _, c := range batch {
		if len(batch) == 1 { // what must be undone is the transaction
			c.run(ctx, tx)
		} else if err := c.runApart(ctx, tx); err != nil {
			return err
		}
		kept = kept || c.kept()
	}
	if !kept {
		return nil
	}
	generation := int64(0)
	if !lazy {
		if generation, err = advance(ctx, tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if !lazy {
		s.batches.syncs.Add(1)
		if s.advanced != nil {
			s.advanced(generation)
		}
	}
	return nil
}

// hurry has the next commits of conn not wait for the disk.
func hurry(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "PRAGMA synchronous=NORMAL")
	return err
}

// calm undoes hurry, or has conn closed: the next one waits for the disk.
func calm(conn *sql.Conn) {
	if _, err := conn.ExecContext(context.Background(), "PRAGMA synchronous=FULL"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// runApart runs c so that it is undone alone when it fails. An error means that
// the transaction cannot go on: SQLite undoes all of it when the disk is full or fails.
func (c *change) runApart(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT change"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	c.run(ctx, tx)
	if !c.kept() {
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT change"); err != nil {
			var reason *sqlite.Error
			if errors.As(c.err, &reason) { // but not a code of ours, which is for c's caller
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

// run calls f and keeps its outcome.
func (c *change) run(ctx context.Context, tx *sql.Tx) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked = fmt.Sprintf("%v\n\nin a write to the database:\n%s", v, debug.Stack())
		}
	}()
	c.err = c.f(ctx, tx)
}

func (c *change) kept() bool { return c.err == nil && c.panicked == nil }

// result is what the caller of a change that is done gets.
func (c *change) result() error {
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}
