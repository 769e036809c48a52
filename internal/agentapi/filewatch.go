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

// MaxWatchedDirs bounds the directories one watch covers.
const MaxWatchedDirs = 16_384

// FileEventType is what happened to a path.
type FileEventType string

// The events of paths. A rename is two events, moved_from and moved_to, either of
// which is alone when the other end is not watched.
const (
	FileCreated    FileEventType = "created"
	FileModified   FileEventType = "modified" // its content
	FileAttributes FileEventType = "attributes"
	FileRemoved    FileEventType = "removed"
	FileMovedFrom  FileEventType = "moved_from"
	FileMovedTo    FileEventType = "moved_to"
)

// The events of the watch itself.
const (
	// WatchReady is the first event: what happens from now on is told.
	WatchReady FileEventType = "ready"
	// WatchOverflow says that events were lost: whoever must know looks itself.
	WatchOverflow FileEventType = "overflow"
	// WatchLimit says that the directory at Path, and maybe others after it, is not
	// watched because there are too many. It comes once.
	WatchLimit FileEventType = "limit"
)

// FileEvent is one thing that happened.
type FileEvent struct {
	Type FileEventType `json:"type"`
	// Path is absolute; "" in ready and overflow.
	Path string `json:"path,omitempty"`
	Dir  bool   `json:"dir,omitempty"` // the path is a directory
}

// valid says whether t is one of the types.
func (t FileEventType) valid() bool {
	switch t {
	case FileCreated, FileModified, FileAttributes, FileRemoved, FileMovedFrom, FileMovedTo,
		WatchReady, WatchOverflow, WatchLimit:
		return true
	default:
		return false
	}
}

// Watch is a watch of files. Next is called by one goroutine at a time, Close by any.
type Watch struct {
	client  *Client
	ctx     context.Context
	request request
	answer  *answer
	frames  *FrameReader
	close   func()
}

// Watch reports what happens to the file or in the directory at path from its
// first event on, which is [WatchReady]; recursive includes all directories
// below, also those that come later: what was made in a new directory before it
// was watched is told as created. Symlinks are not followed, but for a path that
// itself leads to a directory. Events of one path that repeat each other may be
// told once. The watch ends when the directory is removed or moved away, after the
// event of it; that of a file goes on until its directory is. The context
// holds for the whole of the watch.
//
// Errors of the agent: CodeNotFound, CodeInvalid, CodeTooMany for too many watches.
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

// Next returns the next event, io.EOF after the watched directory is gone, and any
// other error when the watch broke off.
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

// Close ends the watch. Closing twice does nothing.
func (w *Watch) Close() error {
	w.close()
	return nil
}
