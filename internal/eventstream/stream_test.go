package eventstream_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/eventrows"
	"github.com/modbox/modbox/internal/store/storetest"
)

// world is a hub over a database with two workspaces.
type world struct {
	*testing.T
	store    *store.Store
	rows     eventrows.Rows
	hub      *eventstream.Hub
	own, far sandbox.WorkspaceID
	settled  sync.Map // the sandboxes for which Settle was called
}

// Settle implements [eventstream.Sandboxes].
func (w *world) Settle(id sandbox.ID) { w.settled.Store(id, true) }

func newWorld(t *testing.T, cfg eventstream.Config) *world {
	t.Helper()
	keys, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	st := storetest.Open(t, filepath.Join(t.TempDir(), "modbox.db"), store.WithKeys(keys))
	w := &world{T: t, store: st, rows: eventrows.New(st.DB)}
	var user sandbox.UserID
	if w.own, user, err = st.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.far = sandbox.NewWorkspaceID()
	if err := st.Workspaces.CreateWorkspace(t.Context(), account.Workspace{ID: w.far, Name: "far", Slug: "far", CreatedBy: user, CreatedAt: time.Now()}, 100); err != nil {
		t.Fatal(err)
	}
	w.hub = eventstream.New(cfg, w.rows, w, slog.New(slog.DiscardHandler))
	w.hub.Start()
	t.Cleanup(w.hub.Close)
	return w
}

// create records a sandbox, whose first event is created.
func (w *world) create(ws sandbox.WorkspaceID, name string) sandbox.ID {
	w.Helper()
	now := time.Now().UTC()
	sb := sandbox.Sandbox{
		ID: sandbox.NewID(), Workspace: ws, Name: name, HostLabel: name + "-" + string(ws), State: sandbox.Provisioning, Image: "i",
		CreatedBy: "owner", CreatedAt: now, UpdatedAt: now,
	}
	c := sandbox.Creation{Sandbox: sb, RequestHash: "h", Event: sandbox.Event{Time: now, Type: sandbox.EventCreated, Message: name}}
	if _, err := w.store.Sandboxes.CreateSandbox(w.Context(), c, quota.Admission{}); err != nil {
		w.Fatal(err)
	}
	return sb.ID
}

func (w *world) add(id sandbox.ID, typ sandbox.EventType, message string) {
	w.Helper()
	if err := w.store.Sandboxes.AppendEvent(w.Context(), sandbox.Event{Sandbox: id, Time: time.Now().UTC(), Type: typ, Message: message}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) follow(f sandbox.EventFilter, from eventstream.From) *eventstream.Stream {
	w.Helper()
	s, err := w.hub.Follow(w.Context(), sandbox.Caller{Workspace: w.own}, f, from)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	return s
}

// read returns the messages of the next n events of a stream.
func (w *world) read(s *eventstream.Stream, n int) []string {
	w.Helper()
	var got []string
	for len(got) < n {
		events, err := s.Next(w.Context(), nil)
		if err != nil {
			w.Error(err)
			return got
		}
		for _, ev := range events {
			got = append(got, ev.Message)
		}
	}
	return got
}

func (w *world) want(what string, got []string, want ...string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestStreamGoesOn checks that a stream has the events of its workspace only, in order, that later
// events wake it, and that another stream goes on after the cursor without loss or repetition.
func TestStreamGoesOn(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a, far := w.create(w.own, "a"), w.create(w.far, "far")
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	w.add(far, sandbox.EventExec, "hidden")
	w.add(a, sandbox.EventExec, "one")
	w.add(a, sandbox.EventPaused, "two")
	w.want("what follows", w.read(s, 2), "one", "two")
	at := s.Cursor()
	got := make(chan []string)
	go func() { got <- w.read(s, 1) }()
	w.add(a, sandbox.EventExec, "three")
	w.want("a stream that waits", <-got, "three")
	w.add(far, sandbox.EventExec, "hidden")
	w.add(a, sandbox.EventExec, "four")
	w.want("a stream that resumes", w.read(w.follow(sandbox.EventFilter{}, eventstream.From{After: &at}), 2), "three", "four")
	var zero int64
	w.want("a stream from the first", w.read(w.follow(sandbox.EventFilter{}, eventstream.From{After: &zero}), 5), "a", "one", "two", "three", "four")
}

// TestSettledEvents checks that events are given to nobody before their changes are seen in the sandboxes.
func TestSettledEvents(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a, b, far := w.create(w.own, "a"), w.create(w.own, "b"), w.create(w.far, "far")
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	settled := func(what string, want ...sandbox.ID) {
		t.Helper()
		for _, id := range []sandbox.ID{a, b, far} {
			if _, got := w.settled.LoadAndDelete(id); got != slices.Contains(want, id) {
				t.Errorf("%s: the change of sandbox %s was waited for: %v", what, id, got)
			}
		}
	}
	w.add(a, sandbox.EventRunning, "one")
	w.read(s, 1)
	settled("a stream", a)
	if _, err := w.hub.List(t.Context(), w.own, sandbox.EventFilter{}); err != nil {
		t.Fatal(err)
	}
	settled("a list", a, b)
}

// TestUncommittedEvents checks that a stream does not pass an event whose transaction is still running.
func TestUncommittedEvents(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a := w.create(w.own, "a")
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	before, err := w.rows.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expired := make(chan time.Time)
	close(expired)
	if err := w.store.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO events (sandbox_id, time, type, message, data, workspace_id) VALUES ($1, 1, 'exec', 'late', '{}', $2)", a, w.own); err != nil {
			return err
		}
		if events, err := s.Next(ctx, expired); len(events) > 0 || err != nil {
			t.Errorf("Next before the commit: %v, %v, want none", events, err)
		}
		if head, err := w.rows.Head(ctx); head != before || err != nil {
			t.Errorf("before the commit the newest event is %d, %v, want %d", head, err, before)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.want("after the commit", w.read(s, 1), "late")
	if head, err := w.rows.Head(t.Context()); head != before+1 || err != nil {
		t.Errorf("after the commit the newest event is %d, %v, want %d", head, err, before+1)
	}
	if err := w.store.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM events")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if head, err := w.rows.Head(t.Context()); head != before+1 || err != nil {
		t.Errorf("after all events were deleted the newest is %d, %v, want %d", head, err, before+1)
	}
}

// TestFilters checks the filters of streams, and that a cursor passes the events that they leave out.
func TestFilters(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a, b := w.create(w.own, "a"), w.create(w.own, "b")
	of := w.follow(sandbox.EventFilter{Sandbox: b}, eventstream.From{})
	types := w.follow(sandbox.EventFilter{Types: []sandbox.EventType{sandbox.EventPaused, sandbox.EventFailed}}, eventstream.From{})
	begin := types.Cursor()
	w.add(a, sandbox.EventExec, "one")
	w.add(b, sandbox.EventExec, "two")
	expired := make(chan time.Time)
	close(expired)
	if events, err := types.Next(t.Context(), expired); len(events) != 0 || err != nil || types.Cursor() != begin+2 {
		t.Errorf("Next without an event of the types = %v, %v with cursor %d; want none and %d", events, err, types.Cursor(), begin+2)
	}
	w.add(a, sandbox.EventPaused, "three")
	w.want("types", w.read(types, 1), "three")
	w.want("sandbox", w.read(of, 1), "two")
	since := time.Now()
	w.add(a, sandbox.EventExec, "four")
	w.want("since", w.read(w.follow(sandbox.EventFilter{}, eventstream.From{Since: since}), 1), "four")
}

// TestManyEvents checks that no event is lost or repeated between a writer and streams, of which
// one is opened anew for every read.
func TestManyEvents(t *testing.T) {
	const n = 3 * 100
	w := newWorld(t, eventstream.Config{})
	a := w.create(w.own, "a")
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	at := s.Cursor()
	go func() {
		for range n {
			if err := w.store.Sandboxes.AppendEvent(t.Context(), sandbox.Event{Sandbox: a, Time: time.Now(), Type: sandbox.EventExec}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	check := func(next func() []sandbox.Event) {
		t.Helper()
		last, seen := at, 0
		for seen < n {
			for _, ev := range next() {
				if ev.Seq <= last {
					t.Fatalf("event %d comes after event %d", ev.Seq, last)
				}
				last = ev.Seq
				seen++
			}
		}
	}
	must := func(s *eventstream.Stream) []sandbox.Event {
		t.Helper()
		events, err := s.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	check(func() []sandbox.Event { return must(s) })
	cursor := at
	check(func() []sandbox.Event {
		s := w.follow(sandbox.EventFilter{}, eventstream.From{After: &cursor})
		events := must(s)
		cursor = s.Cursor()
		s.Close()
		return events
	})
}

func TestBounds(t *testing.T) {
	w := newWorld(t, eventstream.Config{MaxStreams: 3, PerWorkspace: 2})
	open := func(ws sandbox.WorkspaceID) (*eventstream.Stream, error) {
		return w.hub.Follow(t.Context(), sandbox.Caller{Workspace: ws, User: "owner"}, sandbox.EventFilter{}, eventstream.From{})
	}
	var streams []*eventstream.Stream
	for _, tt := range []struct {
		ws   sandbox.WorkspaceID
		code sandbox.Code
	}{{w.own, ""}, {w.own, ""}, {w.own, sandbox.QuotaExceeded}, {w.far, ""}, {w.far, sandbox.QuotaExceeded}} {
		s, err := open(tt.ws)
		if err != nil && sandbox.CodeOf(err) != tt.code || err == nil && tt.code != "" {
			t.Errorf("stream %d: %v, want code %q", len(streams), err, tt.code)
		}
		if err == nil {
			streams = append(streams, s)
		}
	}
	streams[0].Close()
	streams[0].Close() // once more changes nothing
	if got := w.hub.Open(); got != 2 {
		t.Errorf("%d streams are open, want 2", got)
	}
	if _, err := open(w.own); err != nil {
		t.Errorf("a stream in place of another: %v", err)
	}
	for _, after := range []int64{-1, 1000} {
		_, err := w.hub.Follow(t.Context(), sandbox.Caller{Workspace: w.own}, sandbox.EventFilter{}, eventstream.From{After: &after})
		if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Errorf("a fourth stream: %v", err)
		}
		streams[1].Close()
		if _, err = w.hub.Follow(t.Context(), sandbox.Caller{Workspace: w.own}, sandbox.EventFilter{}, eventstream.From{After: &after}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("a stream after event %d: %v, want code invalid", after, err)
		}
		s, err := open(w.own)
		if err != nil {
			t.Fatal(err)
		}
		streams[1] = s
	}
}

// TestBoundOfAUser checks that a user's streams leave others to other users, in however many workspaces they are.
func TestBoundOfAUser(t *testing.T) {
	w := newWorld(t, eventstream.Config{MaxStreams: 100, PerWorkspace: 2, PerUser: 3})
	open := func(user sandbox.UserID, ws sandbox.WorkspaceID) (*eventstream.Stream, error) {
		return w.hub.Follow(t.Context(), sandbox.Caller{Workspace: ws, User: user}, sandbox.EventFilter{}, eventstream.From{})
	}
	var streams []*eventstream.Stream
	for i := range 10 {
		s, err := open("a", sandbox.WorkspaceID(fmt.Sprint("w", i)))
		if (err == nil) != (i < 3) || err != nil && (sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "events.max_streams_per_user")) {
			t.Errorf("stream %d of the user: %v, want the first 3", i, err)
		}
		if err == nil {
			streams = append(streams, s)
		}
	}
	if _, err := open("b", "w0"); err != nil {
		t.Errorf("a stream of another user: %v", err)
	}
	streams[0].Close()
	if _, err := open("a", "w0"); err != nil {
		t.Errorf("a stream of the user in place of another: %v", err)
	}
}

// TestClose checks that the end of the server ends streams, and that a context ends its own.
func TestClose(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	w.create(w.own, "a")
	s, other := w.follow(sandbox.EventFilter{}, eventstream.From{}), w.follow(sandbox.EventFilter{}, eventstream.From{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.Next(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Next of a canceled context: %v", err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Next(t.Context(), nil)
		ended <- err
	}()
	w.hub.Close()
	if err := <-ended; !eventstream.IsEnding(err) || sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Next when the server ends: %v", err)
	}
	if _, err := w.hub.Follow(t.Context(), sandbox.Caller{Workspace: w.own}, sandbox.EventFilter{}, eventstream.From{}); !eventstream.IsEnding(err) {
		t.Errorf("Follow when the server ends: %v", err)
	}
}

// TestEventsOutliveRestart checks that a hub of another store goes on at the same cursor.
func TestEventsOutliveRestart(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a := w.create(w.own, "a")
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	at := s.Cursor()
	w.hub.Close()
	w.add(a, sandbox.EventExec, "while no hub was there")
	next := eventstream.New(eventstream.Config{}, w.rows, w, slog.New(slog.DiscardHandler))
	next.Start()
	t.Cleanup(next.Close)
	w.hub = next
	w.want("after the restart", w.read(w.follow(sandbox.EventFilter{}, eventstream.From{After: &at}), 1), "while no hub was there")
}

// broken fails the first looks of the watcher.
type broken struct {
	eventstream.Store
	failures chan struct{}
}

func (b broken) New(ctx context.Context, after int64) ([]sandbox.WorkspaceID, int64, error) {
	select {
	case <-b.failures:
		return nil, 0, errors.New("the disk is gone")
	default:
		return b.Store.New(ctx, after)
	}
}

// TestWatcherRecovers checks that a failed look for new events is repeated.
func TestWatcherRecovers(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a := w.create(w.own, "a")
	failures := make(chan struct{}, 1)
	failures <- struct{}{}
	w.hub = eventstream.New(eventstream.Config{}, broken{w.rows, failures}, w, slog.New(slog.DiscardHandler))
	w.hub.Start()
	t.Cleanup(w.hub.Close)
	s := w.follow(sandbox.EventFilter{}, eventstream.From{})
	got := make(chan []string)
	go func() { got <- w.read(s, 2) }()
	w.add(a, sandbox.EventExec, "one")
	w.add(a, sandbox.EventExec, "two")
	w.want("after a failure", <-got, "one", "two")
}

func TestList(t *testing.T) {
	w := newWorld(t, eventstream.Config{})
	a, far := w.create(w.own, "a"), w.create(w.far, "far")
	w.add(a, sandbox.EventExec, "one")
	w.add(far, sandbox.EventExec, "hidden")
	b := w.create(w.own, "b")
	between := time.Now()
	w.add(a, sandbox.EventPaused, "two")
	list := func(f sandbox.EventFilter) ([]string, page.Page[sandbox.Event]) {
		t.Helper()
		p, err := w.hub.List(t.Context(), w.own, f)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ev := range p.Items {
			got = append(got, ev.SandboxName+" "+ev.Message)
		}
		return got, p
	}
	for name, tt := range map[string]struct {
		filter sandbox.EventFilter
		want   []string
	}{
		"all":     {sandbox.EventFilter{}, []string{"a a", "a one", "b b", "a two"}},
		"newest":  {sandbox.EventFilter{Descending: true}, []string{"a two", "b b", "a one", "a a"}},
		"sandbox": {sandbox.EventFilter{Sandbox: b}, []string{"b b"}},
		"foreign": {sandbox.EventFilter{Sandbox: far}, nil},
		"types":   {sandbox.EventFilter{Types: []sandbox.EventType{sandbox.EventExec, sandbox.EventPaused}}, []string{"a one", "a two"}},
		"since":   {sandbox.EventFilter{Since: between}, []string{"a two"}},
		"until":   {sandbox.EventFilter{Until: between}, []string{"a a", "a one", "b b"}},
	} {
		got, _ := list(tt.filter)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	f := sandbox.EventFilter{Limit: 3, Descending: true}
	got, p := list(f)
	f.Cursor = p.Next
	rest, last := list(f)
	w.want("pages", append(got, rest...), "a two", "b b", "a one", "a a")
	if last.Next != "" {
		t.Errorf("the last page has the cursor %q", last.Next)
	}
	f.Descending = false
	if _, err := w.hub.List(t.Context(), w.own, f); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a cursor of the other order: %v, want code invalid", err)
	}
}
