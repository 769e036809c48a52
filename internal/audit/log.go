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
	// ActionRefused is the action of counts of refusals without own records.
	ActionRefused = "refused-requests"
	// ActionCut is the action of the record that old or excess records were removed.
	ActionCut = "cut-audit-log"
)

const (
	// queueMax bounds the items that wait before new operations are refused; batchMax bounds the items
	// of a write. The ends of operations in progress are queued however long the queue is.
	queueMax, batchMax = 4096, 256
	// anonymousMax bounds the items that wait before anonymous operations, such as sign-ins, are
	// refused, so that any number of them does not keep out others.
	anonymousMax = queueMax / 4
	// gather is the delay of records that nobody waits for, to collect others: a transaction for each
	// would cost commands more than the records do.
	gather = 50 * time.Millisecond
	// defaultTimeout is the default of Config.WriteTimeout and Config.CloseTimeout.
	defaultTimeout = 30 * time.Second
	// minute is the period of counting refusals, hour the interval of looking for old records.
	minute, hour = time.Minute, time.Hour
	// cutRows bounds the records of a cut; if more are too old, the next cut follows after cutPause.
	cutRows  = 1000
	cutPause = 100 * time.Millisecond
	// cutWords limits the words that one cut removes. Each word changes another page of the index, and all other writers wait until
	// the cut ends.
	cutWords = 5000
	// cutPart: a cut frees this part of MaxBytes, so that not every batch needs a cut.
	cutPart            = 64
	retryMin, retryMax = 50 * time.Millisecond, 5 * time.Second
)

// Store stores the log.
type Store interface {
	// ChangeAudit adds and removes intents and appends records, all in one transaction, and returns the
	// state of the log after it. Other processes may append at the same time. Errors: Unavailable, wrapping
	// sandbox.ErrNoSpace, when the disk is full.
	ChangeAudit(ctx context.Context, change *Change) (Chain, error)
	// CutAudit removes the oldest rows, stores the hash of the last row removed, and returns the
	// number removed, and whether there may be more to remove.
	CutAudit(ctx context.Context, cut Cut) (n int, more bool, err error)
	// AuditChain returns the state of the log.
	AuditChain(ctx context.Context) (Chain, error)
	// AuditRows returns a page of rows, newest first unless the filter says otherwise. Errors:
	// Invalid, naming limit.
	AuditRows(ctx context.Context, f Filter) (page.Page[Row], error)
	// AuditIntents returns at most limit of the intents whose ids are in the shards of the server, in no order.
	AuditIntents(ctx context.Context, limit int) ([]Intent, error)
}

// Config has the limits of the log. Zero values mean no limit.
type Config struct {
	// Owner has the shards of the server, in which the ids of its intents are; nil for all.
	Owner     *sandbox.Ownership
	Retention time.Duration
	MaxBytes  int64
	// Outputs reports whether a workspace has the outputs of its commands recorded; nil means that none has.
	Outputs func(ctx context.Context, ws sandbox.WorkspaceID) (bool, error)
	// MaxOutputs bounds the outputs of a workspace in a day, in bytes; 16 MiB when it is 0.
	MaxOutputs int64
	// MaxRefused bounds the refused anonymous requests that are recorded individually each minute; 60
	// when it is 0.
	MaxRefused int
	// WriteTimeout bounds the time for which an operation waits until its record is written,
	// CloseTimeout the time for which Close waits for operations in progress; 30 s when they are 0.
	WriteTimeout, CloseTimeout time.Duration
}

// Log is the audit log. Safe for concurrent use.
type Log struct {
	store   Store
	cfg     Config
	logger  *slog.Logger
	limit   *limit
	slots   *querySlots
	outputs outputBudget
	// verifying is a semaphore for verifications.
	verifying chan struct{}
	failing   atomic.Bool // the last attempt to write failed
	full      *signal     // on while the disk has no space for the log
	// writing is the time at which the current batch was begun, 0 between batches.
	writing atomic.Int64
	// whole prevents cuts while the log is verified.
	whole    sync.RWMutex
	urgent   chan struct{}   // an item is queued that must not wait for more
	ctx      context.Context // until Close
	stop     context.CancelFunc
	finished chan struct{}

	mu      sync.Mutex
	queue   []item              // guarded by mu
	open    map[*Entry]struct{} // guarded by mu; operations in progress
	closing bool                // guarded by mu; no more operations begin
	closed  bool                // guarded by mu; nothing more is queued
	idle    chan struct{}       // guarded by mu; closed when the last of open has ended, nil before closing
}

// item is a change to write, or an empty item whose turn tells that all items before it are
// written.
type item struct {
	begun   *Intent
	record  *Record
	ended   string          // the intent that it ends
	written chan<- struct{} // closed when it is written; nil when nobody waits
	synced  bool            // it counts as written only after a sync to disk
	nobody  bool            // it begins an anonymous operation
	// inMemory is set for items that need not be written while the disk is full; they stay in memory
	// until then.
	inMemory bool
}

// Open returns the log in the store; it writes until Close.
func Open(store Store, cfg Config, logger *slog.Logger) *Log {
	l := &Log{
		store: store, cfg: cfg, logger: logger, limit: newLimit(cmp.Or(cfg.MaxRefused, refusedAnonymous)), slots: newQuerySlots(), full: newSignal(), verifying: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1), finished: make(chan struct{}), open: map[*Entry]struct{}{},
	}
	l.outputs.limit(&cfg)
	l.cfg.WriteTimeout, l.cfg.CloseTimeout = cmp.Or(cfg.WriteTimeout, defaultTimeout), cmp.Or(cfg.CloseTimeout, defaultTimeout)
	l.ctx, l.stop = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Close refuses new operations, waits for operations in progress, such as on connections that the
// HTTP server does not track any more, records the rest as [Interrupted], and returns when all is
// written. It is idempotent.
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
	late := time.NewTimer(l.cfg.CloseTimeout)
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

// enter adds e to the operations in progress, leave removes it.
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
	case <-l.idle: // it arrived after the last, and nothing was done for it
	default:
		close(l.idle)
	}
}

// unavailable is the error of an operation that is refused because it cannot be recorded.
func unavailable() error {
	return sandbox.Errorf(sandbox.Unavailable, "the audit log cannot be written, and no operation is done without a record; the server's log has the reason")
}

// ready returns code Unavailable while records cannot be written, unless the disk is full and the
// action frees space.
func (l *Log) ready(action string) error {
	if freesSpace(action) && l.full.isOn() {
		return nil
	}
	since := l.writing.Load()
	if l.failing.Load() || since != 0 && time.Since(time.Unix(0, since)) > l.cfg.WriteTimeout {
		return unavailable()
	}
	return nil
}

var (
	errClosed = errors.New("the audit log is closed")
	errFull   = errors.New("too many records wait to be written to the audit log")
	errLate   = errors.New("the audit log was not written in time")
)

// put queues an item. An item that begins an operation is refused when the log is closing or too
// many items wait; other items are queued until the log is closed.
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

// hurry wakes the writer.
func (l *Log) hurry() {
	select {
	case l.urgent <- struct{}{}:
	default: // it is awake
	}
}

// putWait queues an item and waits until it is written, ctx ends, or WriteTimeout has passed; then
// it may still be written later. It does not wait for an item that may stay in memory while the
// disk is full.
func (l *Log) putWait(ctx context.Context, it item) error {
	written := make(chan struct{})
	it.written = written
	if err := l.put(it); err != nil {
		return err
	}
	late := time.NewTimer(l.cfg.WriteTimeout)
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

// Do does an operation that is not a request, and records it: r has the known facts, and do may add
// to the entry in its context. Do does nothing if the intent cannot be written. It returns do's
// error, and the error of writing its end.
func (l *Log) Do(ctx context.Context, r Record, do func(context.Context) error) error {
	e := &Entry{log: l, begun: time.Now(), record: r, explicit: r.ObjectKind != ""}
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

// Client returns the address of a client, without the port, and the group as which clients are
// counted: an IPv4 address, or the /64 of an IPv6 address, which is the smallest block that a
// client has.
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
