package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// FrameFileEvent carries a [FileEvent]. It is in the answer of /files/watch.
const FrameFileEvent FrameType = 0x15

// MaxWatchedDirs bounds the directories that a watch covers.
const MaxWatchedDirs = 16_384

// FileEventType is a kind of change to a path.
type FileEventType string

// Events of paths. A rename is two events, moved_from and moved_to; if only one of the two paths is
// watched, there is only its event.
const (
	FileCreated    FileEventType = "created"
	FileModified   FileEventType = "modified" // its content changed
	FileAttributes FileEventType = "attributes"
	FileRemoved    FileEventType = "removed"
	FileMovedFrom  FileEventType = "moved_from"
	FileMovedTo    FileEventType = "moved_to"
)

// Events of the watch itself.
const (
	// WatchReady is the first event: later changes are reported.
	WatchReady FileEventType = "ready"
	// WatchOverflow reports that events were lost; the client has to look at the files itself.
	WatchOverflow FileEventType = "overflow"
	// WatchLimit reports that the directory at Path, and possibly others after it, is not watched
	// because there are too many. It comes once.
	WatchLimit FileEventType = "limit"
)

// FileEvent is a change to a file, or an event of the watch.
type FileEvent struct {
	Type FileEventType `json:"type"`
	// Path is absolute; "" in ready and overflow.
	Path string `json:"path,omitempty"`
	Dir  bool   `json:"dir,omitempty"` // the path is a directory
}

// valid reports whether t is one of the types.
func (t FileEventType) valid() bool {
	switch t {
	case FileCreated, FileModified, FileAttributes, FileRemoved, FileMovedFrom, FileMovedTo,
		WatchReady, WatchOverflow, WatchLimit:
		return true
	default:
		return false
	}
}

// Watch is a watch of files. Next must be called by a single goroutine at a time; Close may be
// called by any.
type Watch struct {
	client  *Client
	ctx     context.Context
	request request
	answer  *answer
	frames  *FrameReader
	close   func()
}

// Watch reports changes to the file or in the directory at path, from its first event on, which is
// [WatchReady]. recursive includes all directories below, including directories created later: what
// was created in a new directory before it was watched is reported as created. Symlinks are not
// followed, except when path itself leads to a directory. Repeated equal events of a path may be
// reported once. The watch of a directory ends after the event of its removal or move; the watch of
// a file goes on until its directory is removed. ctx applies until the end of the watch.
//
// Errors of the agent: CodeNoFile, CodeInvalid, CodeTooMany for too many watches.
func (c *Client) Watch(ctx context.Context, path string, recursive bool) (*Watch, error) {
	q := c.query(path)
	q.Set("recursive", strconv.FormatBool(recursive))
	r := request{method: http.MethodGet, path: "/files/watch", query: q, again: true}
	a, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	w := &Watch{client: c, ctx: ctx, request: r, answer: a, frames: answerFrames(a.Body)}
	w.close = sync.OnceFunc(a.close)
	return w, nil
}

// Next returns the next event, io.EOF after the watched directory is gone, and another error when
// the watch failed.
func (w *Watch) Next() (FileEvent, error) {
	f, err := w.frames.Next()
	switch {
	case err == io.EOF:
		return FileEvent{}, io.EOF
	case errors.Is(err, ErrBadAnswer):
		return FileEvent{}, err
	case err != nil:
		return FileEvent{}, w.client.explain(w.ctx, w.request, w.answer.conn, err)
	case f.Type != FrameFileEvent:
		return FileEvent{}, fmt.Errorf("%w: %s: unexpected frame 0x%02x", ErrBadAnswer, w.request.path, f.Type)
	}
	var e FileEvent
	if err := json.Unmarshal(f.Data, &e); err != nil {
		return FileEvent{}, fmt.Errorf("%w: %s: %w", ErrBadAnswer, w.request.path, err)
	}
	if !e.Type.valid() {
		return FileEvent{}, fmt.Errorf("%w: %s: event %q", ErrBadAnswer, w.request.path, e.Type)
	}
	return e, nil
}

// Close ends the watch. It is idempotent.
func (w *Watch) Close() error {
	w.close()
	return nil
}
