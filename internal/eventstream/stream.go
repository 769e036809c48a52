// Package eventstream lets clients read the events of all sandboxes of a workspace: as a list, and
// as a stream that goes on with the events to come.
//
// The events are rows that are only ever appended, numbered by Seq in the order of their commits. A
// stream is a Seq up to which its client has read, and reads what follows from the store; it has no
// queue of its own. So a slow client costs no memory, a client that comes back with the Seq of its
// last event misses nothing and gets nothing twice, and a restart of the server changes nothing. A
// commit wakes the streams of the workspaces that have new events; nothing is polled.
//
// An event is in the store a moment before its change is in the view of the sandbox that answers look-ups.
// A client must not have the event in that moment: it would look at the sandbox, see the state before, and
// get no other event.
package eventstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// batch is the number of events that a stream reads from the store at once.
	batch = 100
	// retryPause is the pause after a failed look for new events.
	retryPause = time.Second
	// retryAfter is the delay suggested to refused clients.
	retryAfter = 30 * time.Second
)

// Store reads events. It is safe for concurrent use.
type Store interface {
	// Committed returns a channel that the next commit closes.
	Committed() <-chan struct{}
	// Head returns the greatest Seq that an event has ever had; 0 without events.
	Head(ctx context.Context) (int64, error)
	// New returns the workspaces that have events after a Seq, and the greatest Seq of these events,
	// or after if there are none.
	New(ctx context.Context, after int64) (list []sandbox.WorkspaceID, head int64, err error)
	// List returns a page of the events of a workspace. Errors: Invalid, naming limit or cursor.
	List(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.EventFilter) (page.Page[sandbox.Event], error)
}

// Sandboxes are the sandboxes that the events are about. It is safe for concurrent use.
type Sandboxes interface {
	// Settle waits while a change of a sandbox is being recorded: look-ups then see every change that
	// the store had before.
	Settle(id sandbox.ID)
}

// Config bounds streams; 0 means no limit.
type Config struct {
	// MaxStreams, PerWorkspace and PerUser bound the streams that are open.
	MaxStreams, PerWorkspace, PerUser int
}

// Hub has the open streams. Make it with [New]. It is safe for concurrent use.
type Hub struct {
	cfg       Config
	store     Store
	sandboxes Sandboxes
	log       *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{} // closed when the watcher has ended; nil before Start
	opened broadcast.Broadcast

	mu     sync.Mutex
	topics map[sandbox.WorkspaceID]*topic // of the workspaces with streams; guarded by mu
	users  map[sandbox.UserID]int         // streams of each user that has some; guarded by mu
	open   int                            // streams; guarded by mu
}

// topic wakes the streams of a workspace.
type topic struct {
	changed broadcast.Broadcast
	streams int // guarded by Hub.mu
}

// New returns a hub without streams. The caller calls [Hub.Start] before it opens a stream.
func New(cfg Config, store Store, sandboxes Sandboxes, log *slog.Logger) *Hub {
	h := &Hub{cfg: cfg, store: store, sandboxes: sandboxes, log: log, topics: map[sandbox.WorkspaceID]*topic{}, users: map[sandbox.UserID]int{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Start starts to watch for new events, until [Hub.Close].
func (h *Hub) Start() {
	h.ended = make(chan struct{})
	go func() {
		defer close(h.ended)
		h.watch()
	}()
}

// Close ends all streams, and refuses others. It may be called again.
func (h *Hub) Close() {
	h.cancel()
	if h.ended != nil {
		<-h.ended
	}
}

// watch wakes the streams of workspaces with new events.
func (h *Hub) watch() {
	var seen int64
	watching := false // whether every event after seen wakes its workspace
	for h.ctx.Err() == nil {
		opened := h.opened.Wait()
		if h.Open() == 0 {
			watching = false
			select {
			case <-opened:
			case <-h.ctx.Done():
				return
			}
		}
		committed := h.store.Committed() // before the look at the store
		var err error
		if watching {
			seen, err = h.wakeNew(seen)
		} else if seen, err = h.store.Head(h.ctx); err == nil {
			watching = true
			h.wake(nil)
		}
		if err != nil {
			if h.ctx.Err() == nil {
				h.log.Error("look for new events", "error", err)
			}
			h.pause()
			continue
		}
		select {
		case <-committed:
		case <-h.ctx.Done():
		}
	}
}

// wakeNew wakes the streams of workspaces with events after seen, and returns the newest of these.
func (h *Hub) wakeNew(seen int64) (int64, error) {
	list, head, err := h.store.New(h.ctx, seen)
	if err != nil {
		return seen, err
	}
	if len(list) > 0 {
		h.wake(list)
	}
	return head, nil
}

func (h *Hub) pause() {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// wake wakes the streams of workspaces; nil means all.
func (h *Hub) wake(list []sandbox.WorkspaceID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if list == nil {
		list = slices.Collect(maps.Keys(h.topics))
	}
	for _, ws := range list {
		if t := h.topics[ws]; t != nil {
			t.changed.Send()
		}
	}
}

// Open returns the number of open streams.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Collector returns the metrics of the streams.
func (h *Hub) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_event_streams",
		Help: "Streams of events that clients follow.",
	}, func() float64 { return float64(h.Open()) })
}

// List returns a page of the events of a workspace. The caller sees their changes also in the sandboxes.
// Errors: Invalid, naming limit or cursor.
func (h *Hub) List(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	p, err := h.store.List(ctx, ws, f)
	settled := map[sandbox.ID]bool{}
	for _, ev := range p.Items {
		if !settled[ev.Sandbox] {
			h.sandboxes.Settle(ev.Sandbox)
			settled[ev.Sandbox] = true
		}
	}
	return p, err
}

// From is where a stream begins. The zero value is the next event to come.
type From struct {
	// After is the Seq after which it begins; nil for none.
	After *int64
	// Since, when set and After is nil or 0, leaves out earlier events.
	Since time.Time
}

// Follow opens a stream of the events of the workspace of c that f selects by sandbox and type. The stream
// counts for the user of c. The caller must close it.
//
// Errors: QuotaExceeded when too many streams are open; Invalid, naming after_seq, for a Seq that no
// event has had; Unavailable when the server is ending.
func (h *Hub) Follow(ctx context.Context, c sandbox.Caller, f sandbox.EventFilter, from From) (*Stream, error) {
	t, err := h.add(c)
	if err != nil {
		return nil, err
	}
	s := &Stream{hub: h, ws: c.Workspace, topic: t, filter: sandbox.EventFilter{Sandbox: f.Sandbox, Types: f.Types, Limit: batch}}
	s.close = sync.OnceFunc(func() { h.remove(c) })
	if err := s.begin(ctx, from); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (h *Hub) add(c sandbox.Caller) (*topic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, errEnding
	}
	t := h.topics[c.Workspace]
	if t == nil {
		t = &topic{}
	}
	for _, limit := range []struct {
		have, most int
		whose, set string
	}{
		{h.users[c.User], h.cfg.PerUser, "you have", "events.max_streams_per_user"},
		{t.streams, h.cfg.PerWorkspace, "the workspace has", "events.max_streams_per_workspace"},
		{h.open, h.cfg.MaxStreams, "the server has", "events.max_streams"},
	} {
		if limit.most > 0 && limit.have >= limit.most {
			e := sandbox.Errorf(sandbox.QuotaExceeded, "%s %d open streams of events, which is the limit (%s); end a stream first", limit.whose, limit.have, limit.set)
			e.RetryAfter = retryAfter
			return nil, e
		}
	}
	h.topics[c.Workspace] = t
	t.streams++
	h.users[c.User]++
	h.open++
	h.opened.Send()
	return t, nil
}

func (h *Hub) remove(c sandbox.Caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	if h.users[c.User]--; h.users[c.User] == 0 {
		delete(h.users, c.User)
	}
	if h.topics[c.Workspace].streams--; h.topics[c.Workspace].streams == 0 {
		delete(h.topics, c.Workspace)
	}
}

var errEnding = sandbox.Errorf(sandbox.Unavailable, "the server is ending; connect again with the id of the last event")

// IsEnding reports whether a stream ended because the server ends.
func IsEnding(err error) bool { return errors.Is(err, errEnding) }

// Stream is an open stream. One goroutine at a time may use it.
type Stream struct {
	hub    *Hub
	ws     sandbox.WorkspaceID
	topic  *topic
	filter sandbox.EventFilter
	cursor int64
	close  func()
}

// begin sets the cursor.
func (s *Stream) begin(ctx context.Context, from From) error {
	head, err := s.hub.store.Head(ctx)
	if err != nil {
		return err
	}
	switch {
	case from.After == nil && from.Since.IsZero():
		s.cursor = head
	case from.After == nil:
	case *from.After < 0 || *from.After > head:
		return sandbox.InvalidField("after_seq", "no event of this server has the number %d, the newest has %d; if the database was restored from a backup, begin again without a number", *from.After, head)
	default:
		s.cursor = *from.After
	}
	if s.cursor == 0 { // the stream before has read nothing
		s.filter.Since = from.Since
	}
	return nil
}

// Cursor is the Seq after which another stream must begin to go on here. It grows also with
// events that the filter leaves out.
func (s *Stream) Cursor() int64 { return s.cursor }

// Next returns the events that follow, in order, and waits until there are some, or until wait is
// ready: then it returns none.
//
// Errors: the context's; [IsEnding] reports Unavailable when the server is ending.
func (s *Stream) Next(ctx context.Context, wait <-chan time.Time) ([]sandbox.Event, error) {
	for {
		changed := s.topic.changed.Wait() // before the look at the store
		if s.hub.ctx.Err() != nil {
			return nil, errEnding
		}
		events, err := s.read(ctx)
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-changed:
		case <-wait:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.hub.ctx.Done():
			return nil, errEnding
		}
	}
}

// read returns the next events that are in the store.
func (s *Stream) read(ctx context.Context) ([]sandbox.Event, error) {
	// Commits are in the order of Seq, so everything up to head is there to be read.
	head, err := s.hub.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	if head <= s.cursor {
		return nil, nil
	}
	s.filter.AfterSeq = s.cursor
	p, err := s.hub.List(ctx, s.ws, s.filter)
	switch {
	case err != nil:
		return nil, err
	case len(p.Items) > 0:
		s.cursor = p.Items[len(p.Items)-1].Seq
	default:
		// From here on, all events are later than Since, whatever the clock says.
		s.cursor, s.filter.Since = head, time.Time{}
	}
	return p.Items, nil
}

// Close closes the stream. It may be called again.
func (s *Stream) Close() { s.close() }
