package kernel

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/kernelapi"
)

// run is one execution of code, and its events for readers.
type run struct {
	id      string
	code    string
	timeout time.Duration
	limits  kernelapi.Limits
	stop    chan struct{} // closed when the run is to be interrupted

	mu        sync.Mutex
	cause     kernelapi.Status // guarded by mu; why stop was closed
	events    [][]byte         // guarded by mu; as JSON, each with a newline
	bytes     int              // guarded by mu; of events
	truncated bool             // guarded by mu
	ended     bool             // guarded by mu; the last event is the end
	changed   chan struct{}    // guarded by mu; closed by the next event
	readers   int              // guarded by mu
	unread    *time.Timer      // guarded by mu; runs while there are no readers
}

func newRun(id string, r *kernelapi.Run) *run {
	n := &run{id: id, code: r.Code, timeout: r.Timeout, limits: r.Limits, stop: make(chan struct{}), changed: make(chan struct{})}
	n.unread = time.AfterFunc(kernelapi.ReaderGrace, func() { n.interrupt(kernelapi.Interrupted) })
	return n
}

// interrupt has the run end with a status. Only the first interruption counts.
func (r *run) interrupt(cause kernelapi.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == "" {
		r.cause = cause
		close(r.stop)
	}
}

// stopped returns why the run was interrupted, "" if it was not.
func (r *run) stopped() kernelapi.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}

// maxText bounds the text of an event with output. Longer output becomes several events.
const maxText = 256 << 10

// emit appends an event. It does not wait for readers.
func (r *run) emit(ev kernelapi.Event) {
	for (ev.Type == kernelapi.Stdout || ev.Type == kernelapi.Stderr) && len(ev.Text) > maxText {
		cut := maxText
		for !utf8.RuneStart(ev.Text[cut]) {
			cut--
		}
		head := ev
		head.Text, ev.Text = ev.Text[:cut], ev.Text[cut:]
		r.add(head)
	}
	switch ev.Type {
	case kernelapi.Result:
		fit(&ev)
	case kernelapi.Failure:
		ev.Name, ev.Value = shorten(ev.Name, 1<<10), shorten(ev.Value, maxText)
		ev.Traceback = ev.Traceback[:min(len(ev.Traceback), kernelapi.MaxLines)]
		left := maxText
		for i, line := range ev.Traceback {
			ev.Traceback[i] = shorten(line, left)
			left -= len(ev.Traceback[i])
		}
	}
	r.add(ev)
}

// shorten returns the beginning of s, of at most most bytes.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// fit leaves out the largest formats of a result until the rest fits.
func fit(ev *kernelapi.Event) {
	total := 0
	for name, value := range ev.Data {
		total += len(name) + len(value)
	}
	const most = kernelapi.MaxEvent - 64<<10
	names := slices.SortedFunc(maps.Keys(ev.Data), func(a, b string) int { return cmp.Compare(len(ev.Data[b]), len(ev.Data[a])) })
	for _, name := range names {
		if total <= most && len(ev.Data) <= kernelapi.MaxFormats {
			break
		}
		total -= len(name) + len(ev.Data[name])
		delete(ev.Data, name)
		if len(ev.Omitted) < 16 {
			ev.Omitted = append(ev.Omitted, shorten(name, 100))
		}
	}
}

// add appends an event, unless the run has too many. The first and the last event are always appended.
func (r *run) add(ev kernelapi.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	ev.Seq = len(r.events) + 1
	ev.Truncated = r.truncated
	data, err := json.Marshal(ev)
	if err != nil {
		return // a kernel sent a line that is not JSON
	}
	always := ev.Type == kernelapi.Started || ev.Type == kernelapi.End || ev.Type == kernelapi.Failure && len(data) < maxText
	if !always && r.bytes+len(data) > kernelapi.MaxEvents || len(data) > kernelapi.MaxEvent {
		r.truncated = true
		return
	}
	r.bytes += len(data)
	r.events = append(r.events, append(data, '\n'))
	r.ended = ev.Type == kernelapi.End
	close(r.changed)
	r.changed = make(chan struct{})
}

// next returns the events after the first n, whether these are all, and a channel that is closed
// when there are more.
func (r *run) next(n int) (events [][]byte, ended bool, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[min(n, len(r.events)):], r.ended, r.changed
}

// open counts a reader until close is called.
func (r *run) open() (closed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	r.unread.Stop()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.readers--; r.readers == 0 && !r.ended {
			r.unread.Reset(kernelapi.ReaderGrace)
		}
	}
}

// size returns how much memory an ended run holds; ended is false for others.
func (r *run) size() (bytes int, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.ended
}
