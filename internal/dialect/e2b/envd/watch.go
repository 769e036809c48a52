package envd

import (
	"context"
	"crypto/rand"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// watchersMax bounds the watchers of a sandbox that are asked for their events, bufferedEvents the events
	// that a watcher buffers, and watcherTime the time in which nobody asks for them.
	watchersMax    = 64
	bufferedEvents = 4096
	watcherTime    = 10 * time.Minute
)

// eventTypes are the dialect's types of events.
var eventTypes = map[agentapi.FileEventType]pb.EventType{
	agentapi.FileCreated:    pb.EventType_EVENT_TYPE_CREATE,
	agentapi.FileMovedTo:    pb.EventType_EVENT_TYPE_CREATE,
	agentapi.FileModified:   pb.EventType_EVENT_TYPE_WRITE,
	agentapi.FileAttributes: pb.EventType_EVENT_TYPE_CHMOD,
	agentapi.FileRemoved:    pb.EventType_EVENT_TYPE_REMOVE,
	agentapi.FileMovedFrom:  pb.EventType_EVENT_TYPE_RENAME,
}

// eventOf returns an event with its name relative to the watched directory; nil for an event of the
// watch itself.
func eventOf(root string, e agentapi.FileEvent) *pb.FilesystemEvent {
	t, ok := eventTypes[e.Type]
	if !ok {
		return nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(e.Path, strings.TrimSuffix(root, "/")), "/")
	return &pb.FilesystemEvent{Name: name, Type: t}
}

// described returns events with what the client wants to know of the files that still exist. It describes a file
// once, follows the links of the first resolvedMax, and leaves out descriptions beyond answerMax.
func (f *files) described(ctx context.Context, at *place, events []*pb.FilesystemEvent, wanted bool) []*pb.FilesystemEvent {
	if !wanted {
		return events
	}
	entries, left := map[string]*pb.EntryInfo{}, answerMax
	out := make([]*pb.FilesystemEvent, len(events))
	for i, e := range events {
		out[i] = e
		if e.Type == pb.EventType_EVENT_TYPE_REMOVE || e.Type == pb.EventType_EVENT_TYPE_RENAME {
			continue
		}
		entry, known := entries[e.Name]
		if !known && left > 0 && ctx.Err() == nil {
			if info, err := f.stat(ctx, at, path.Join(at.path, e.Name)); err == nil { // otherwise it is gone again
				entry = f.entry(ctx, at, info, len(entries) < resolvedMax)
			}
			entries[e.Name] = entry
		}
		if left -= proto.Size(entry); left >= 0 {
			out[i] = &pb.FilesystemEvent{Name: e.Name, Type: e.Type, Entry: entry}
		}
	}
	return out
}

// WatchDir implements the service.
func (f *files) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest], stream *connect.ServerStream[pb.WatchDirResponse]) error {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err == nil {
		err = f.directory(ctx, &at, at.path)
	}
	if err != nil {
		return public(ctx, err)
	}
	watch, err := f.calls.Watch(ctx, at.caller, at.ref, at.path, req.Msg.GetRecursive())
	if err != nil {
		return public(ctx, err)
	}
	defer watch.Close() //nolint:errcheck // it is over
	events, failed := make(chan agentapi.FileEvent), make(chan error, 1)
	go func() {
		for {
			e, err := watch.Next()
			if err != nil {
				failed <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	silence := keepaliveOf(req.Header())
	timer := silence.begin()
	defer timer.Stop()
	for {
		var out *pb.WatchDirResponse
		select {
		case err := <-failed:
			if err == io.EOF {
				return nil // the directory is gone
			}
			return public(ctx, err)
		case <-timer.C:
			out = &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}}
		case e := <-events:
			if e.Type == agentapi.WatchReady {
				out = &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}
			} else if ev := eventOf(at.path, e); ev != nil {
				out = &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: f.described(ctx, &at, []*pb.FilesystemEvent{ev}, req.Msg.GetIncludeEntry())[0]}}
			}
		}
		if out == nil {
			continue
		}
		if err := stream.Send(out); err != nil {
			return public(ctx, err)
		}
		timer.Reset(silence.interval)
	}
}

// watchers are the watches whose events clients ask for. A watch that nobody asks ends.
type watchers struct {
	work  *background.Group
	calls *guest.Calls

	mu        sync.Mutex
	bySandbox map[sandbox.ID]map[string]*watcher // guarded by mu
}

func newWatchers(work *background.Group, calls *guest.Calls) *watchers {
	return &watchers{work: work, calls: calls, bySandbox: map[sandbox.ID]map[string]*watcher{}}
}

// watcher is one of these watches.
type watcher struct {
	at      place
	entries bool
	timer   *time.Timer
	cancel  func()

	mu     sync.Mutex
	events []*pb.FilesystemEvent // guarded by mu
}

// add begins a watch and returns its id when it is ready; ctx is the request's. Errors: QuotaExceeded; the
// errors of a watch.
func (ws *watchers) add(ctx context.Context, at place, recursive, entries bool) (string, error) {
	id := "w" + rand.Text()
	life, cancel := context.WithCancel(ws.work.Context())
	w := &watcher{at: at, entries: entries, cancel: cancel, timer: time.AfterFunc(watcherTime, cancel)}
	if !ws.register(id, w) {
		w.end()
		return "", sandbox.Errorf(sandbox.QuotaExceeded, "the sandbox already has %d watchers", watchersMax)
	}
	unbind := context.AfterFunc(ctx, cancel)
	watch, err := ws.calls.Watch(life, at.caller, at.ref, at.path, recursive)
	if err == nil {
		if _, err = watch.Next(); err == nil && !unbind() { // it is ready, and the client gone
			err = ctx.Err()
		}
		if err == nil && !ws.work.Go(func() { ws.pump(id, w, watch) }) {
			err = sandbox.Errorf(sandbox.Unavailable, "the server is being shut down; try again")
		}
		if err != nil {
			_ = watch.Close() // nobody waits for its events
		}
	}
	if err != nil {
		unbind()
		ws.remove(at.sb.ID, id)
		return "", err
	}
	return id, nil
}

// register adds a watcher unless its sandbox has too many.
func (ws *watchers) register(id string, w *watcher) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := ws.bySandbox[w.at.sb.ID]
	if len(all) >= watchersMax {
		return false
	}
	if all == nil {
		all = map[string]*watcher{}
		ws.bySandbox[w.at.sb.ID] = all
	}
	all[id] = w
	return true
}

// pump buffers the events of a watch until its end.
func (ws *watchers) pump(id string, w *watcher, watch *guest.FileWatch) {
	defer ws.remove(w.at.sb.ID, id)
	defer watch.Close() //nolint:errcheck // it is over
	for {
		e, err := watch.Next()
		if err != nil {
			return
		}
		w.buffer(eventOf(w.at.path, e))
	}
}

// end ends the watch.
func (w *watcher) end() {
	w.timer.Stop()
	w.cancel()
}

// buffer keeps an event for the next request; the oldest of too many is lost.
func (w *watcher) buffer(e *pb.FilesystemEvent) {
	if e == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	if len(w.events) > bufferedEvents {
		w.events = w.events[1:]
	}
}

// take returns the events since the last call.
func (w *watcher) take() []*pb.FilesystemEvent {
	w.timer.Reset(watcherTime)
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.events
	w.events = nil
	return out
}

// giveBack keeps events that take returned for the next request, which gets them before newer events.
func (w *watcher) giveBack(events []*pb.FilesystemEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = slices.Concat(events, w.events)
	w.events = w.events[max(len(w.events)-bufferedEvents, 0):]
}

// get returns a watcher. Errors: NotFound.
func (ws *watchers) get(id sandbox.ID, watcherID string) (*watcher, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.bySandbox[id][watcherID]; w != nil {
		return w, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no watcher %q", sandbox.Excerpt(watcherID))
}

// remove ends a watcher.
func (ws *watchers) remove(id sandbox.ID, watcherID string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.bySandbox[id][watcherID]; w != nil {
		w.end()
		delete(ws.bySandbox[id], watcherID)
	}
	if len(ws.bySandbox[id]) == 0 {
		delete(ws.bySandbox, id)
	}
}

// CreateWatcher implements the service.
func (f *files) CreateWatcher(ctx context.Context, req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	at, err := f.at(ctx, req.Header(), req.Msg.GetPath())
	if err == nil {
		err = f.directory(ctx, &at, at.path)
	}
	var id string
	if err == nil {
		id, err = f.watchers.add(ctx, at, req.Msg.GetRecursive(), req.Msg.GetIncludeEntry())
	}
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), public(ctx, err)
}

// GetWatcherEvents implements the service.
func (f *files) GetWatcherEvents(ctx context.Context, req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	w, err := f.watchers.get(visitOf(ctx).sb.ID, req.Msg.GetWatcherId())
	if err != nil {
		return nil, public(ctx, err)
	}
	events := w.take()
	out := &pb.GetWatcherEventsResponse{Events: f.described(ctx, &w.at, events, w.entries)}
	if err := ctx.Err(); err != nil { // the client is gone
		w.giveBack(events)
		return nil, public(ctx, err)
	}
	return connect.NewResponse(out), nil
}

// RemoveWatcher implements the service.
func (f *files) RemoveWatcher(ctx context.Context, req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	id := visitOf(ctx).sb.ID
	if _, err := f.watchers.get(id, req.Msg.GetWatcherId()); err != nil {
		return nil, public(ctx, err)
	}
	f.watchers.remove(id, req.Msg.GetWatcherId())
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}
