package images

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// clientTimeout bounds how long a write to a client may block, and how long the client may
	// take to read the remaining messages after the build's end. Then the server disconnects it.
	clientTimeout = time.Minute
	// unreadMax bounds the messages for a client that reads slowly: more than the output of any build,
	// so that it ends none.
	unreadMax = 32 << 20
	// unreadOverhead is the memory of a message in addition to its text.
	unreadOverhead = 512
	// outputPart is how long output becomes in one message when there is more at once.
	outputPart = 64 << 10
)

// buildLog sends the events of a build to its client. The build never waits for the client: unread
// messages stay in memory. The build ends when the client reads nothing for a while.
type buildLog struct {
	w       http.ResponseWriter
	control *http.ResponseController
	every   time.Duration      // of pings
	cancel  context.CancelFunc // of the build
	changed chan struct{}      // has a place for one

	mu     sync.Mutex
	ended  chan struct{}            // closed when nothing is written any more; nil before anything is; guarded by mu
	unread []wire.ImageBuildMessage // guarded by mu
	bytes  int                      // of those; guarded by mu
	until  time.Time                // when the rest must be read, once nothing more comes; guarded by mu
	lost   bool                     // the client is gone; guarded by mu
}

// newBuildLog returns a log for a client. It writes nothing before the first message.
func newBuildLog(w http.ResponseWriter, every time.Duration, cancel context.CancelFunc) *buildLog {
	return &buildLog{w: w, control: http.NewResponseController(w), every: every, cancel: cancel, changed: make(chan struct{}, 1)}
}

// began reports whether anything was said.
func (l *buildLog) began() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended != nil
}

// say adds a message. It does not wait.
func (l *buildLog) say(m wire.ImageBuildMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = make(chan struct{})
		_ = l.control.EnableFullDuplex() // the context may be read later; a transport without, as in tests
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
		go l.write(l.ended)
	}
	if l.lost {
		return
	}
	if !l.merge(m) {
		l.unread = append(l.unread, m)
		l.bytes += len(m.Data) + len(m.Message) + len(m.Instruction) + unreadOverhead
	}
	if l.bytes > unreadMax {
		l.lose()
	}
	l.tell()
}

// event tells what happens in a build.
func (l *buildLog) event(e build.Event) {
	m := wire.ImageBuildMessage{Type: string(e.Kind)}
	switch e.Kind {
	case build.KindStep:
		m.Step, m.Steps, m.Line, m.Stage, m.Instruction, m.Cached = e.Step, e.Steps, e.Line, e.Stage, e.Instruction, e.Cached
	case build.KindOutput:
		m.Data = e.Output
	case build.KindWarning:
		m.Message = e.Warning
	case build.KindProgress:
		p := e.Progress
		m.Phase, m.Done, m.Total, m.Message = string(p.Phase), p.Done, p.Total, p.Message
	}
	l.say(m)
}

// merge adds a message to the one before it where both are one to the client: output
// that goes on, and progress, of which only the latest counts.
//
// Preconditions: l.mu is held.
func (l *buildLog) merge(m wire.ImageBuildMessage) bool {
	if len(l.unread) == 0 {
		return false
	}
	last := &l.unread[len(l.unread)-1]
	switch {
	case last.Type != m.Type:
		return false
	case m.Type == string(build.KindOutput) && len(last.Data)+len(m.Data) <= outputPart:
		last.Data = append(last.Data, m.Data...)
		l.bytes += len(m.Data)
		return true
	case m.Type == string(build.KindProgress):
		l.bytes += len(m.Message) - len(last.Message)
		*last = m
		return true
	}
	return false
}

// lose gives the client up.
//
// Preconditions: l.mu is held.
func (l *buildLog) lose() {
	l.lost, l.unread, l.bytes = true, nil, 0
	l.cancel()
}

func (l *buildLog) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// close waits until the client has read everything, or has had its time for it.
func (l *buildLog) close() {
	l.mu.Lock()
	l.until = time.Now().Add(clientTimeout)
	ended := l.ended
	l.mu.Unlock()
	if ended == nil {
		return
	}
	l.tell()
	<-ended
	_ = l.control.SetWriteDeadline(time.Time{})
}

// take returns the unread lines; over says that it was the last.
func (l *buildLog) take() (unread []wire.ImageBuildMessage, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unread, l.unread, l.bytes = l.unread, nil, 0
	return unread, !l.until.IsZero()
}

// deadline is when the client must have taken what it is sent next.
func (l *buildLog) deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.until.IsZero() {
		return l.until
	}
	return time.Now().Add(clientTimeout)
}

// write sends the lines of the log, and a ping after each silence, until nothing more comes.
func (l *buildLog) write(ended chan<- struct{}) {
	defer close(ended)
	ping := time.NewTimer(l.every)
	defer ping.Stop()
	for {
		unread, over := l.take()
		if len(unread) == 0 && !over {
			select {
			case <-l.changed:
				continue
			case <-ping.C:
				unread = []wire.ImageBuildMessage{{Type: wire.StreamPing}}
			}
		}
		if err := l.send(unread); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lose()
			return
		}
		if over {
			return
		}
		ping.Reset(l.every)
	}
}

// send writes messages.
func (l *buildLog) send(list []wire.ImageBuildMessage) error {
	for _, m := range list {
		_ = l.control.SetWriteDeadline(l.deadline()) // a transport without deadlines, as in tests
		if err := json.NewEncoder(l.w).Encode(m); err != nil {
			return err
		}
	}
	return l.control.Flush()
}

// uploadReader is the context of a build as it comes: it must be there within a time from
// when it is begun to be read, which is at the build's turn.
type uploadReader struct {
	io.Reader
	rest    io.Reader // the body after the context, which has its end alone
	control *http.ResponseController
	within  time.Duration
	after   time.Time // until when the connection is read afterwards: that tells whether the client is there
	begun   bool
}

func (u *uploadReader) Read(p []byte) (int, error) {
	if !u.begun {
		u.begun = true
		_ = u.control.SetReadDeadline(time.Now().Add(u.within)) // a transport without deadlines, as in tests
	}
	n, err := u.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = u.finish()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = sandbox.Wrap(sandbox.Timeout, err, "it did not arrive within %s", u.within)
	case err != nil:
		_ = u.control.SetReadDeadline(u.after)
	}
	return n, err
}

// finish reads the end of the body, and returns [io.EOF]: the HTTP server notices that a client leaves only when it has
// read the whole body.
func (u *uploadReader) finish() error {
	const most = 4 << 10 // the last boundary, and what some clients write after it
	n, err := io.Copy(io.Discard, io.LimitReader(u.rest, most+1))
	switch {
	case err != nil:
		return err
	case n > most:
		return sandbox.InvalidField("context", "is not the last part of the body")
	}
	return io.EOF
}
