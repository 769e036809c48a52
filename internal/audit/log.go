package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Actions of the log itself.
const (
	// ActionRefused is the record of refusals that have none of their own.
	ActionRefused = "refused-requests"
	// ActionCut is the record of records that were removed because they were too old
	// or too many.
	ActionCut = "cut-audit-log"
)

const (
	// queueMax is how much may wait before nothing more is let in, batchMax how much
	// is written at once. What was let in is queued however long the queue is.
	queueMax, batchMax = 4096, 256
	// anonymousMax is how much may wait before nobody is let in who has not said who they
	// are, such as who signs in: however many those are, they do not keep others out.
	anonymousMax = queueMax / 4
	// gather is how long records that nobody waits for are kept for others to come:
	// a transaction for each would cost commands more than the records do.
	gather = 50 * time.Millisecond
	// patience is the default of Config.Patience and Config.Linger.
	patience = 30 * time.Second
	// minute is how often refusals are counted anew, hour how often old records are
	// looked for.
	minute, hour = time.Minute, time.Hour
	// cutRows is how many records are removed at once; when those are not all that
	// are too old, the next ones follow after cutPause.
	cutRows  = 1000
	cutPause = 100 * time.Millisecond
	// cutPart of MaxBytes is what a cut makes room for, so that not every batch has one.
	cutPart            = 64
	retryMin, retryMax = 50 * time.Millisecond, 5 * time.Second
)

// Store keeps the log.
type Store interface {
	// ChangeAudit adds and removes intents and adds rows, all in one transaction, and returns the
	// state of the log after it. Nobody else adds rows meanwhile. Errors: Unavailable, wrapping
	// sandbox.ErrNoSpace, when the disk is full.
	ChangeAudit(ctx context.Context, change *sandbox.AuditChange) (sandbox.AuditChain, error)
	// CutAudit removes the oldest rows, keeps the hash of the last row removed, and returns the
	// number removed.
	CutAudit(ctx context.Context, cut sandbox.AuditCut) (int, error)
	// AuditChain returns the state of the log.
	AuditChain(ctx context.Context) (sandbox.AuditChain, error)
	// AuditRows returns a page of rows, the newest first unless the filter says otherwise. Errors:
	// Invalid, naming limit.
	AuditRows(ctx context.Context, f sandbox.AuditFilter) (page.Page[sandbox.AuditRow], error)
	// AuditIntents returns at most limit intents, in no order.
	AuditIntents(ctx context.Context, limit int) ([]sandbox.AuditIntent, error)
}

// Config says what is kept. Zero values mean no limit.
type Config struct {
	Retention time.Duration
	MaxBytes  int64
	// MaxRefused is how many requests of nobody that are refused are recorded one by
	// one in a minute; 60 when it is 0.
	MaxRefused int
	// Patience is how long an operation waits to be written, Linger how long Close
	// waits for operations under way; 30 s when they are 0.
	Patience, Linger time.Duration
}

// Log is the audit log. Safe for concurrent use.
type Log struct {
	store  Store
	cfg    Config
	logger *slog.Logger
	limit  *limit
	turns  *turns
	// verifying holds one verification at a time.
	verifying chan struct{}
	failing   atomic.Bool // whether the last attempt to write failed
	full      *signal     // on while the disk has no space for the log
	// writing is since when a batch is being written, 0 while none is.
	writing atomic.Int64
	// whole keeps cuts out while the log is verified.
	whole    sync.RWMutex
	urgent   chan struct{}   // something is queued that must not wait for more
	ctx      context.Context // until Close
	stop     context.CancelFunc
	finished chan struct{}

	mu      sync.Mutex
	queue   []item              // guarded by mu
	open    map[*Entry]struct{} // guarded by mu; operations under way
	closing bool                // guarded by mu; nothing more is let in
	closed  bool                // guarded by mu; nothing more is queued
	idle    chan struct{}       // guarded by mu; closed when the last of open has ended, nil before closing
}

// item is what is to be written, or nothing for a look at how far the writer is.
type item struct {
	begun   *sandbox.AuditIntent
	record  *Record
	ended   string          // the intent that this is the end of
	written chan<- struct{} // closed when it is written; nil when nobody waits
	synced  bool            // it is written only when a loss of power leaves it
	nobody  bool            // it lets in somebody of whom nothing is known
	// inMemory is set for what need not be written while the disk is full, but is kept in
	// memory until it is.
	inMemory bool
}

// Open returns the log in the store; it writes until Close.
func Open(store Store, cfg Config, logger *slog.Logger) *Log {
	l := &Log{
		store: store, cfg: cfg, logger: logger, limit: newLimit(cmp.Or(cfg.MaxRefused, refusedAnonymous)), turns: newTurns(), full: newSignal(), verifying: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1), finished: make(chan struct{}), open: map[*Entry]struct{}{},
	}
	l.cfg.Patience, l.cfg.Linger = cmp.Or(cfg.Patience, patience), cmp.Or(cfg.Linger, patience)
	l.ctx, l.stop = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Close lets nothing more in, waits a while for operations under way, such as those
// of connections that the HTTP server does not know any more, records those that
// still go on as [Interrupted], and returns when all is written. Closing twice does
// nothing.
func (l *Log) Close() {
	l.mu.Lock()
	if !l.closing {
		l.closing, l.idle = true, make(chan struct{})
		if len(l.open) == 0 {
			close(l.idle)
		}
	}
	idle := l.idle
	l.mu.Unlock()
	late := time.NewTimer(l.cfg.Linger)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C:
		for _, e := range l.underWay() {
			e.interrupt()
		}
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	<-l.finished
}

func (l *Log) underWay() []*Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*Entry, 0, len(l.open))
	for e := range l.open {
		list = append(list, e)
	}
	return list
}

// enter counts e among the operations under way, leave takes it out.
func (l *Log) enter(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[e] = struct{}{}
}

func (l *Log) leave(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[e]; !ok {
		return
	}
	delete(l.open, e)
	if !l.closing || len(l.open) != 0 {
		return
	}
	select {
	case <-l.idle: // this one came after the last, and nothing was done for it
	default:
		close(l.idle)
	}
}

// unavailable is what is answered instead of doing what could not be recorded.
func unavailable() error {
	return sandbox.Errorf(sandbox.Unavailable, "the audit log cannot be written, and without it nothing is done; the server's log says why")
}

// ready returns code Unavailable while records cannot be written, unless the disk is full
// and the action frees space.
func (l *Log) ready(action string) error {
	if freesSpace(action) && l.full.isOn() {
		return nil
	}
	since := l.writing.Load()
	if l.failing.Load() || since != 0 && time.Since(time.Unix(0, since)) > l.cfg.Patience {
		return unavailable()
	}
	return nil
}

var (
	errClosed = errors.New("the audit log is closed")
	errFull   = errors.New("too much waits to be written to the audit log")
	errLate   = errors.New("the audit log was not written in time")
)

// put queues an item. One that lets something in is not queued when the log closes
// or too much waits; everything else is, until the log is closed.
func (l *Log) put(it item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || l.closing && it.begun != nil:
		return errClosed
	case it.ended == "" && (len(l.queue) >= queueMax || it.nobody && len(l.queue) >= anonymousMax):
		return errFull
	}
	l.queue = append(l.queue, it)
	if it.written != nil || len(l.queue) >= batchMax {
		l.hurry()
	} else if len(l.queue) == 1 {
		time.AfterFunc(gather, l.hurry)
	}
	return nil
}

// hurry makes the writer look into the queue.
func (l *Log) hurry() {
	select {
	case l.urgent <- struct{}{}:
	default: // it will
	}
}

// putWait queues an item and waits until it is written, ctx ends, or Patience is
// over. It may be written later then. It does not wait for an item that may be kept in
// memory while the disk is full.
func (l *Log) putWait(ctx context.Context, it item) error {
	written := make(chan struct{})
	it.written = written
	if err := l.put(it); err != nil {
		return err
	}
	late := time.NewTimer(l.cfg.Patience)
	defer late.Stop()
	var full <-chan struct{} // nil: it must be written
	if it.inMemory {
		full = l.full.on()
	}
	select {
	case <-written:
		return nil
	case <-full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errLate
	case <-l.finished:
		select {
		case <-written:
			return nil
		default:
			return errClosed
		}
	}
}

// Do does what is no request, and records it: r has what is known, do may note more
// on the entry in its context. It is not done when that it begins cannot be written.
// Its error is returned, and that its end could not be written.
func (l *Log) Do(ctx context.Context, r Record, do func(context.Context) error) error {
	e := &Entry{log: l, begun: time.Now(), record: r, told: r.ObjectKind != ""}
	l.enter(e)
	defer l.leave(e)
	if err := e.Begin(ctx); err != nil {
		return err
	}
	err := do(WithEntry(ctx, e))
	if err != nil {
		e.Fail(cmp.Or(sandbox.CodeOf(err), sandbox.Internal))
	}
	return errors.Join(err, e.end(ctx, 0))
}

// flush waits until everything added before is written.
// Errors: Unavailable; ctx's.
func (l *Log) flush(ctx context.Context) error {
	err := l.putWait(ctx, item{})
	if err != nil && ctx.Err() == nil {
		return unavailable()
	}
	return err
}

// Client returns the address of a client, without the port, and the group it is in
// where clients are counted: one IPv4 address, or the /64 of an IPv6 one, which is
// the least a single client has.
func Client(remote string) (address, group string) {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote, remote
	}
	addr := ap.Addr().Unmap()
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return addr.String(), p.String()
		}
	}
	return addr.String(), addr.String()
}
