package otlp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// logsInterval is the longest time between two exports.
	logsInterval = time.Second
	// batchBytesMax bounds the entries of a request, in bytes before their compression.
	batchBytesMax = 4 << 20
)

// Logs sends the entries of a log. It is safe for concurrent use.
type Logs struct {
	*client
	to       Receiver
	resource *resourcepb.Resource
	dropped  prometheus.Counter

	full    chan struct{}   // has an element when a whole batch waits
	ending  chan struct{}   // is closed when no further batch may begin
	sending context.Context // ends when the batch under way must end
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu      sync.Mutex
	waiting []entry // guarded by mu; the oldest is first
	bytes   int     // guarded by mu; of all that wait
	closed  bool    // guarded by mu
}

// entry is an entry of the log that waits for its export.
type entry struct {
	record *logspb.LogRecord
	bytes  int
}

// NewLogs returns an exporter, whose entries wait until [Logs.Begin]. The log of the receiver, which has what goes wrong
// with it, must not be sent there. The caller calls [Logs.Close].
func NewLogs(to Receiver) (*Logs, error) {
	c, err := newClient(to, "logs", "log")
	if err != nil {
		return nil, err
	}
	l := &Logs{
		client: c, to: to, resource: resourceOf(to), full: make(chan struct{}, 1), ending: make(chan struct{}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modbox_log_entries_dropped_total",
			Help: "Entries of the log that did not arrive at the receiver: too many waited, their batch was given up, or the receiver rejected them.",
		}),
	}
	l.sending, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Begin begins to send, as an instance (see [Receiver]). It must be called once at most, and not after [Logs.Close].
func (l *Logs) Begin(instance string) {
	l.to.Instance = instance
	l.resource = resourceOf(l.to)
	l.work.Go(func() {
		ticker := time.NewTicker(logsInterval)
		defer ticker.Stop()
		for {
			select {
			case <-l.ending:
				return
			case <-l.full:
			case <-ticker.C:
			}
			l.export(l.sending, l.ending)
		}
	})
}

// Collectors returns the metrics of the export.
func (l *Logs) Collectors() []prometheus.Collector {
	return append(l.client.Collectors(), l.dropped)
}

// Handler returns a handler that passes entries on to next, and sends them if next takes their level.
func (l *Logs) Handler(next slog.Handler) slog.Handler {
	return slog.NewMultiHandler(next, handler{logs: l, next: next})
}

// Close sends the entries that wait, until ctx ends. A batch under way has half of that time, so that a receiver that
// does not answer it does not cost the others their attempt.
func (l *Logs) Close(ctx context.Context) error {
	defer l.client.close()
	defer l.stop()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.ending)
	half, cancel := halfOf(ctx)
	defer cancel()
	defer context.AfterFunc(half, l.stop)()
	l.work.Wait()
	if !l.export(ctx, nil) {
		return ctx.Err()
	}
	return nil
}

// halfOf returns a context that ends after half of the time that ctx has.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// export sends the waiting entries in batches, and begins no batch after until is closed. It reports whether all batches
// arrived.
func (l *Logs) export(ctx context.Context, until <-chan struct{}) (ok bool) {
	ok = true
	for {
		select {
		case <-until:
			return ok
		default:
		}
		batch := l.take()
		if len(batch) == 0 {
			return ok
		}
		rejected, sent := l.send(ctx, &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
			Resource: l.resource, ScopeLogs: []*logspb.ScopeLogs{{Scope: &commonpb.InstrumentationScope{Name: scope}, LogRecords: batch}},
		}}})
		if !sent {
			rejected, ok = len(batch), false
		}
		l.dropped.Add(float64(min(rejected, len(batch))))
	}
}

// add has an entry wait for its export, and drops the oldest one if too many wait.
func (l *Logs) add(record *logspb.LogRecord) {
	e := entry{record, proto.Size(record)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.dropped.Inc()
		return
	}
	if len(l.waiting) == queueMax {
		l.bytes -= l.waiting[0].bytes
		l.waiting[0] = entry{} // which is garbage from now on
		l.waiting = l.waiting[1:]
		l.dropped.Inc()
	}
	l.waiting = append(l.waiting, e)
	if l.bytes += e.bytes; len(l.waiting) >= batchMax || l.bytes >= batchBytesMax {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// take returns the next batch, whose entries do not wait any more.
func (l *Logs) take() (batch []*logspb.LogRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes := 0
	for _, e := range l.waiting {
		if bytes += e.bytes; len(batch) == batchMax || len(batch) > 0 && bytes > batchBytesMax {
			break
		}
		batch = append(batch, e.record)
		l.bytes -= e.bytes
	}
	clear(l.waiting[:len(batch)])
	if l.waiting = l.waiting[len(batch):]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	return batch
}
