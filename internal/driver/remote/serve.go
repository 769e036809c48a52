package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-yamux/v5"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// call is a call in progress.
type call struct {
	served  *served
	req     *request
	stream  *yamux.Stream
	ctx     context.Context
	unwatch func() // ends the watch for a cancellation
}

// answer sends the last answer.
func (c *call) answer(r *response) {
	if writeMessage(c.stream, r) == nil {
		_ = c.stream.CloseWrite()
	}
}

// run makes the call and sends its answer.
func (c *call) run() {
	d := c.served.driver
	switch c.req.Op {
	case opDial:
		c.dial(d)
	case opPlug:
		c.plug(d)
	case opWriteLayer, opWriteNames:
		c.writeLayer(d)
	case opStage:
		c.stage()
	case opImage:
		c.image()
	case opCheckpoint:
		c.answer(&response{Error: encode(c.checkpoint(d))})
	default:
		r, err := c.simple(d)
		r.Error = encode(err)
		c.answer(&r)
	}
}

// as returns a driver as another interface. Errors: Unsupported.
func as[T any](d driver.Driver) (T, error) {
	t, ok := d.(T)
	if !ok {
		return t, sandbox.Errorf(sandbox.Unsupported, "the worker's driver cannot do this")
	}
	return t, nil
}

// simple makes a call with one answer that needs nothing else.
func (c *call) simple(d driver.Driver) (r response, err error) {
	ctx, req := c.ctx, c.req
	switch req.Op {
	case opCreate, opRestore:
		r.Handle, err = c.make(d)
	case opStart:
		err = d.Start(ctx, req.ID)
	case opRecover:
		err = d.Recover(ctx, req.ID, req.Handle)
	case opWait:
		r.Exit, err = d.Wait(ctx, req.ID)
	case opDestroy:
		if err = d.Destroy(ctx, req.ID); err == nil {
			c.served.unlink(req.ID)
			c.served.cache.Unuse(req.ID)
		}
	case opStats:
		r.Stats, err = d.Stats(ctx, req.ID)
	case opList:
		r.IDs, err = d.List(ctx)
	case opFurnish:
		r.Layers, err = c.furnish(d)
	case opCanRestore:
		err = c.canRestore(d)
	case opUnplug:
		var n driver.Networker
		if n, err = as[driver.Networker](d); err == nil {
			err = n.Unplug(ctx, req.ID)
		}
		if err == nil {
			c.served.unlink(req.ID)
		}
	case opUsage:
		var m driver.Meter
		if m, err = as[driver.Meter](d); err == nil {
			r.Usage, err = m.Usage(ctx, req.ID)
		}
	case opDiskUse:
		var m driver.DiskMeter
		if m, err = as[driver.DiskMeter](d); err == nil {
			r.DiskUse, err = m.DiskUse()
		}
	default:
		err = sandbox.Errorf(sandbox.Unsupported, "the worker does not know the call %q", req.Op)
	}
	return r, err
}

// dial connects the stream to a port of a box.
func (c *call) dial(d driver.Driver) {
	inside, err := d.Dial(c.ctx, c.req.ID, c.req.Port)
	if err != nil {
		c.answer(&response{Error: encode(err)})
		return
	}
	c.unwatch()
	if c.ctx.Err() != nil || writeMessage(c.stream, &response{}) != nil {
		_ = inside.Close()
		return
	}
	defer context.AfterFunc(c.ctx, func() { _ = inside.Close() })() // the box may not read
	splice(c.stream, inside)
}

// writeLayer sends what a box has written.
func (c *call) writeLayer(d driver.Driver) {
	reader, err := as[driver.Snapshotter](d)
	if err != nil {
		c.answer(&response{Error: encode(err)})
		return
	}
	out := &body{call: c}
	if c.req.Op == opWriteNames {
		out.patience = namesTimeout
		err = reader.WriteNames(c.ctx, c.req.ID, out)
	} else {
		err = reader.WriteLayer(c.ctx, c.req.ID, out)
	}
	out.end(err)
}

// body sends the answer to a call that has a layer: an answer before the first bytes, the bytes, and an
// answer with the error at the end. An error before the first bytes is the answer.
type body struct {
	call     *call
	patience time.Duration // for each write; 0 for no limit
	chunks   *chunkWriter  // nil before the first bytes
}

// Write implements io.Writer.
func (b *body) Write(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	if b.patience > 0 {
		_ = b.call.stream.SetWriteDeadline(time.Now().Add(b.patience))
	}
	n, err := b.chunks.Write(p)
	if errors.Is(err, yamux.ErrTimeout) {
		err = sandbox.Wrap(sandbox.Timeout, err, "the server does not take the names of the files in time")
	}
	return n, err
}

func (b *body) begin() error {
	if b.chunks != nil {
		return nil
	}
	b.chunks = &chunkWriter{w: b.call.stream}
	return writeMessage(b.call.stream, &response{})
}

// end sends the end of the body, and its error.
func (b *body) end(err error) {
	if b.chunks == nil && err != nil {
		b.call.answer(&response{Error: encode(err)})
		return
	}
	if b.begin() != nil || b.chunks.end() != nil {
		return
	}
	b.call.answer(&response{Error: encode(err)})
}

// workerLink is an interface of a box, whose frames go to the control plane while one is connected.
type workerLink struct {
	token   string
	packets net.Conn
	turn    sync.Mutex // held while frames are carried
}

// unlink ends the interface of a box.
func (s *served) unlink(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.links[id]; l != nil {
		_ = l.packets.Close()
		delete(s.links, id)
	}
}

// plug gives a box an interface, unless it has this one, and carries its frames.
func (c *call) plug(d driver.Driver) {
	l, err := c.link(d)
	if err != nil {
		c.answer(&response{Error: encode(err)})
		return
	}
	c.unwatch()
	if c.ctx.Err() != nil || writeMessage(c.stream, &response{}) != nil {
		return
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	carry(c.stream, l.packets)
}

// link returns the interface of the call, which it plugs if the box does not have it.
func (c *call) link(d driver.Driver) (*workerLink, error) {
	n := c.req.NIC
	if n == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the call has no interface")
	}
	c.served.plugging.Lock()
	defer c.served.plugging.Unlock()
	c.served.mu.Lock()
	l := c.served.links[c.req.ID]
	c.served.mu.Unlock()
	if l != nil && l.token == n.Token {
		return l, nil
	}
	networker, err := as[driver.Networker](d)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := packetPair()
	if err != nil {
		return nil, err
	}
	if err := networker.Plug(c.ctx, c.req.ID, driver.NIC{
		File: theirs, MAC: n.MAC, GatewayMAC: n.GatewayMAC, Address: n.Address, Gateway: n.Gateway, MTU: n.MTU,
	}); err != nil {
		_ = ours.Close()
		return nil, err
	}
	l = &workerLink{token: n.Token, packets: ours}
	c.served.unlink(c.req.ID)
	c.served.mu.Lock()
	defer c.served.mu.Unlock()
	c.served.links[c.req.ID] = l
	return l, nil
}

// packetPair returns the two ends of an interface.
func packetPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	for _, fd := range fds {
		// The kernel grants as much as the host allows; less only costs speed.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "gateway"), os.NewFile(uintptr(fds[1]), "nic")
	defer ours.Close()
	conn, err := net.FileConn(ours) // duplicates it
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return conn, theirs, nil
}
