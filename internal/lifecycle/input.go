package lifecycle

import (
	"context"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// inputAhead is how far what was written may be ahead of what was sent.
	inputAhead = 64 << 10
	// inputKept is how much of what was sent is kept, to be sent again: more than
	// can be between the server and the agent when their connection breaks.
	inputKept = agentapi.MaxInFlight
)

// input is the stdin of a command or the terminal of an execution, on its way
// through one connection after the other. It is safe for concurrent use.
type input struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte           // guarded by mu; the bytes from start on
	start   int64            // guarded by mu
	sent    int64            // guarded by mu; over the connection there is
	conn    *agentapi.Stream // guarded by mu; the connection there is, or was
	closed  bool             // guarded by mu; nothing will be added
	ended   bool             // guarded by mu; nothing will be sent
}

func newInput() *input {
	in := &input{}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// write adds p, and waits until most of it was sent, or ctx ends.
func (in *input) write(ctx context.Context, p []byte) (int, error) {
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
		room := int(inputAhead - (end - in.sent))
		switch {
		case in.closed || in.ended:
			return done, io.ErrClosedPipe
		case ctx.Err() != nil:
			return done, ctx.Err()
		case room <= 0:
			in.changed.Wait()
			continue
		}
		part := p[done:min(len(p), done+room)]
		in.data = append(in.data, part...)
		done += len(part)
		in.changed.Broadcast()
	}
	return done, nil
}

// close says that nothing will be added.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.changed.Broadcast()
}

// end says that nobody takes anything any more.
func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.changed.Broadcast()
}

// follow has everything sent over conn from now on, from where the agent has it.
// The first connection says where that begins.
func (in *input) follow(conn *agentapi.Stream) {
	in.mu.Lock()
	if in.conn == nil {
		in.start = conn.StdinOffset()
	}
	in.conn, in.sent = conn, conn.StdinOffset()
	in.changed.Broadcast()
	in.mu.Unlock()
	go in.feed(conn)
}

// forget drops what was written: the process is another one from now on, or an
// earlier self.
func (in *input) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.data, in.conn, in.sent = nil, nil, in.start
	in.changed.Broadcast()
}

// feed sends everything over conn until it was all sent, the connection breaks,
// or another one takes its place.
func (in *input) feed(conn *agentapi.Stream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	buf := make([]byte, 0, agentapi.MaxFrame/2)
	for {
		end := in.start + int64(len(in.data))
		switch {
		case in.ended || in.conn != conn:
			return
		case in.sent < in.start || in.sent > end:
			_ = conn.Close() // an agent that says so lies, and its command gets no more
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
		in.trim()
		in.changed.Broadcast()
	}
}

// unlocked calls f without the lock. The caller holds mu.
func (in *input) unlocked(f func()) {
	in.mu.Unlock()
	defer in.mu.Lock()
	f()
}

// trim drops what will not be sent again. The caller holds mu.
func (in *input) trim() {
	const slack = inputKept / 2 // so that what is kept is not moved for every piece
	if drop := int(in.sent-in.start) - inputKept; drop >= slack {
		in.data = append(in.data[:0], in.data[drop:]...)
		in.start += int64(drop)
	}
}
