package guest

import (
	"context"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// inputAhead bounds the input that was written and not yet sent, in bytes.
	inputAhead = 64 << 10
	// narrowInput is the buffer of every input, in bytes. The buffer retains sent input, to
	// send it again when the connection breaks. It grows up to wideInput while there is memory:
	// then it retains agentapi.MaxInFlight of sent input, more than can be in flight between
	// the server and the agent.
	narrowInput = 96 << 10
	wideInput   = agentapi.MaxInFlight * 3 / 2
	// inputPiece is the size of a write to the agent, in bytes.
	inputPiece = agentapi.MaxFrame / 2
	// inputOverhead is the memory of an input beside its buffer: a piece being sent, and a
	// piece that the caller has read.
	inputOverhead = 2 * inputPiece
)

// Input is the stdin of a command, or the input of an execution's terminal. It survives the
// connections that carry it. It is safe for concurrent use.
type Input struct {
	agent *agentapi.Client // counts the bytes

	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte           // guarded by mu; the bytes from start on
	most     int              // guarded by mu; that data may be
	reserved int64            // guarded by mu; bytes counted
	start    int64            // guarded by mu
	sent     int64            // guarded by mu; over the connection there is
	conn     *agentapi.Stream // guarded by mu; the connection there is, or was
	closed   bool             // guarded by mu; nothing will be added
	ended    bool             // guarded by mu; nothing will be sent
	dropped  bool             // guarded by mu; it was narrow once and has not kept what a wide one would
	lost     bool             // guarded by mu; something is to be sent again that was not kept
}

// NewInput returns an input that counts callerBytes bytes in addition to its own buffer. The caller
// calls End, which releases all counted bytes. If the memory limit is reached, NewInput returns an
// error and an input that counts nothing.
func NewInput(agent *agentapi.Client, callerBytes int64) (*Input, error) {
	in := &Input{agent: agent, most: narrowInput}
	in.changed = sync.NewCond(&in.mu)
	if err := in.reserve(narrowInput+inputOverhead, false); err != nil {
		return in, err
	}
	if err := in.reserve(callerBytes, true); err != nil {
		in.End()
		return in, err
	}
	return in, nil
}

// reserve counts n more bytes. The caller holds mu, or is NewInput.
func (in *Input) reserve(n int64, yield bool) error {
	if err := in.agent.Reserve(n, yield); err != nil {
		return err
	}
	in.reserved += n
	return nil
}

// Write appends p, and waits until most of it was sent or ctx ends.
func (in *Input) Write(ctx context.Context, p []byte) (int, error) {
	defer context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.changed.Broadcast()
	})()
	in.mu.Lock()
	defer in.mu.Unlock()
	done := 0
	for done < len(p) {
		end := in.start + int64(len(in.data))
		space := int(inputAhead - max(0, end-in.sent))
		switch {
		case in.closed || in.ended:
			return done, io.ErrClosedPipe
		case ctx.Err() != nil:
			return done, ctx.Err()
		case space <= 0:
			in.changed.Wait()
			continue
		}
		part := p[done:min(len(p), done+space)]
		in.add(part)
		done += len(part)
		in.changed.Broadcast()
	}
	return done, nil
}

// add adds part, of at most inputAhead bytes. If the buffer cannot take it, add drops the oldest
// sent input.
//
// Preconditions: mu is held.
func (in *Input) add(part []byte) {
	need := len(in.data) + len(part)
	if more := min(in.most, wideInput-in.most); need > in.most && more > 0 && in.reserve(int64(more), true) == nil {
		in.most += more
	}
	if over := need - in.most; over > 0 {
		// Not for every piece: dropping moves the rest.
		drop := min(max(over, in.most/4), int(in.sent-in.start), len(in.data))
		in.dropped = in.dropped || in.most < wideInput
		in.data = append(in.data[:0], in.data[drop:]...)
		in.start += int64(drop)
		need -= drop
	}
	if need > cap(in.data) { // append could take more than was counted
		in.data = append(make([]byte, 0, max(need, min(2*cap(in.data), in.most))), in.data...)
	}
	in.data = append(in.data, part...)
}

// Close ends the input: no more bytes follow.
func (in *Input) Close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.changed.Broadcast()
}

// End discards the input: no connection takes it any more. It may be called again.
func (in *Input) End() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended, in.data = true, nil
	in.agent.Release(in.reserved)
	in.reserved = 0
	in.changed.Broadcast()
}

// Follow sends the input over conn from now on, from the byte that the agent needs next. The first
// connection determines the first byte.
func (in *Input) Follow(conn *agentapi.Stream) {
	in.mu.Lock()
	if in.conn == nil {
		in.start = conn.StdinOffset()
	}
	in.conn, in.sent = conn, conn.StdinOffset()
	in.changed.Broadcast()
	in.mu.Unlock()
	go in.feed(conn)
}

// Forget discards the bytes that were written, because the process was replaced or returned to an
// earlier state.
func (in *Input) Forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.data, in.conn, in.sent, in.lost = nil, nil, in.start, false
	in.changed.Broadcast()
}

// feed sends the input over conn until all of it was sent, the connection breaks, or another
// connection replaces it.
func (in *Input) feed(conn *agentapi.Stream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	buf := make([]byte, 0, inputPiece)
	for {
		end := in.start + int64(len(in.data))
		switch {
		case in.ended || in.conn != conn:
			return
		case in.sent < in.start || in.sent > end:
			// A narrow input has not kept it, or the agent lies: the command gets no more.
			in.lost = in.sent < in.start && in.dropped
			_ = conn.Close()
			return
		case in.sent == end && in.closed:
			in.unlocked(func() { _ = conn.CloseStdin() }) // fails only with the connection
			return
		case in.sent == end:
			in.changed.Wait()
			continue
		}
		from, offset := in.data[in.sent-in.start:], in.sent
		buf = append(buf[:0], from[:min(len(from), cap(buf))]...)
		var n int
		var err error
		in.unlocked(func() { n, err = conn.WriteAt(buf, offset) })
		if err != nil || in.conn != conn {
			return
		}
		in.sent = offset + int64(n)
		in.changed.Broadcast()
	}
}

// unlocked calls f without the lock. The caller holds mu.
func (in *Input) unlocked(f func()) {
	in.mu.Unlock()
	defer in.mu.Lock()
	f()
}

// Failed returns why the input cannot continue, or nil.
func (in *Input) Failed() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.lost {
		return nil
	}
	return sandbox.Errorf(sandbox.Unavailable,
		"the connection to the command broke and the server had no memory to keep all of its input, which cannot be sent again")
}

// kept returns the capacity of the buffer, and the offset of its first byte.
func (in *Input) kept() (size int, start int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return cap(in.data), in.start
}
