package agent

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// chunkBytes is how large a chunk of output grows by appending.
	chunkBytes = 32 << 10
	// maxAhead is how far a process may be ahead of its slowest reader. A reader can lose
	// agentapi.StreamWindow bytes with its connection; that, maxAhead and a chunk together are less
	// than agentapi.ReplayWindow, so attaching again loses nothing.
	maxAhead = 64 << 10
)

// output is a process's output: the last keep bytes, and the positions of its readers. Writers wait
// for readers; agentapi says when.
type output struct {
	keep int64

	mu        sync.Mutex
	chunks    []chunk                    // guarded by mu; oldest first
	start     int64                      // guarded by mu; offset of the first byte kept
	end       int64                      // guarded by mu; offset behind the last byte
	readers   map[*outputReader]struct{} // guarded by mu
	blockFrom int64                      // guarded by mu; without readers, writers wait maxAhead after this offset; -1: never
	closed    bool                       // guarded by mu; nothing will be appended
	changed   chan struct{}              // guarded by mu; closed at the next change; nil when nobody waits
}

// chunk is a run of bytes of one stream. Bytes in data never change.
type chunk struct {
	frame  agentapi.FrameType
	offset int64
	data   []byte
}

// outputReader is one attached reader.
type outputReader struct {
	out *output
	pos int64 // guarded by out.mu
}

// newOutput returns an empty output. With backpressure, writers wait while no reader is attached.
func newOutput(keep int64, backpressure bool) *output {
	o := &output{keep: keep, blockFrom: -1, readers: make(map[*outputReader]struct{}, 1)}
	if backpressure {
		o.blockFrom = 0
	}
	return o
}

// wake wakes all waiters to check again. The caller holds mu.
func (o *output) wake() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// wait returns a channel that is closed at the next change. The caller holds mu.
func (o *output) wait() <-chan struct{} {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.changed
}

// append adds a copy of data, after waiting until readers have caught up.
func (o *output) append(frame agentapi.FrameType, data []byte) {
	if len(data) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.writableLocked() {
		changed := o.wait()
		o.mu.Unlock()
		<-changed
		o.mu.Lock()
	}
	if last := len(o.chunks) - 1; last >= 0 && o.chunks[last].frame == frame && len(o.chunks[last].data)+len(data) <= chunkBytes {
		o.chunks[last].data = append(o.chunks[last].data, data...)
	} else {
		o.chunks = append(o.chunks, chunk{frame: frame, offset: o.end, data: slices.Clone(data)})
	}
	o.end += int64(len(data))
	o.trimLocked(o.keep)
	o.wake()
}

// writableLocked reports whether a writer may proceed.
func (o *output) writableLocked() bool {
	if len(o.readers) == 0 {
		return o.blockFrom < 0 || o.end-o.blockFrom < maxAhead
	}
	for r := range o.readers {
		if o.end-r.pos >= maxAhead {
			return false
		}
	}
	return true
}

// trimLocked drops the oldest chunks beyond the last keep bytes.
func (o *output) trimLocked(keep int64) {
	drop := 0
	for drop < len(o.chunks) && o.end-o.start-int64(len(o.chunks[drop].data)) >= keep {
		o.start += int64(len(o.chunks[drop].data))
		drop++
	}
	if drop > 0 {
		o.chunks = slices.Delete(o.chunks, 0, drop)
	}
}

// finish marks the output as complete.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake()
}

// unblock lets writers proceed while no reader is attached.
func (o *output) unblock() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blockFrom = -1
	o.wake()
}

// size returns how many bytes are stored.
func (o *output) size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end - o.start
}

// attach adds a reader at an offset; a negative offset means the oldest byte in memory, except
// agentapi.FromEnd.
func (o *output) attach(offset int64) (*outputReader, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case offset == agentapi.FromEnd:
		offset = o.end
	case offset < 0:
		offset = o.start
	case offset < o.start:
		return nil, answer.Errorf(agentapi.CodeOutputGone, "output before byte %d was discarded", o.start)
	case offset > o.end:
		return nil, answer.Invalid("the output has only %d bytes", o.end)
	}
	r := &outputReader{out: o, pos: offset}
	o.readers[r] = struct{}{}
	o.wake()
	return r, nil
}

// close removes the reader. If it was the last and backpressure is set, writers wait relative to its
// position.
func (r *outputReader) close() {
	o := r.out
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.readers, r)
	if o.blockFrom >= 0 {
		o.blockFrom = max(o.blockFrom, r.pos)
	}
	o.wake()
}

// next waits for output at the reader's position and returns up to limit bytes of a single stream,
// which remain valid. It returns no bytes at the end of all output, and an error when ctx ends.
// Only advance moves the position.
func (r *outputReader) next(ctx context.Context, limit int) (agentapi.FrameType, []byte, error) {
	o := r.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for r.pos == o.end {
		if o.closed {
			return 0, nil, nil
		}
		changed := o.wait()
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		o.mu.Lock()
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
	}
	if r.pos < o.start {
		return 0, nil, answer.Errorf(agentapi.CodeOutputGone, "output before byte %d was discarded", o.start)
	}
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i].offset > r.pos }) - 1
	c := o.chunks[i]
	data := c.data[r.pos-c.offset:]
	return c.frame, data[:min(len(data), limit)], nil
}

// advance records that n bytes were sent. It reports whether more are available at once.
func (r *outputReader) advance(n int) bool {
	o := r.out
	o.mu.Lock()
	defer o.mu.Unlock()
	r.pos += int64(n)
	o.wake()
	return r.pos < o.end || o.closed
}
