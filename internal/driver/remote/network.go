package remote

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxFrame bounds an Ethernet frame in bytes.
	maxFrame = 1<<16 - 1
	// frameTimeout is how long a frame waits for the packet side to take it. Until then the stream is not read.
	frameTimeout = 100 * time.Millisecond
)

// link carries the frames between a box's interface on the worker and its gateway here.
type link struct {
	req     *request // plugs it, or connects it again
	gateway net.Conn
	life    context.Context
	end     context.CancelFunc
	done    chan struct{} // closed when nothing of it goes on
}

// Plug implements [driver.Networker]. While no worker is connected, frames are lost.
func (d *Driver) Plug(ctx context.Context, id sandbox.ID, n driver.NIC) error {
	gateway, err := net.FileConn(n.File) // duplicates the file
	_ = n.File.Close()
	if err != nil {
		return fmt.Errorf("interface of box %s: %w", id, err)
	}
	if !d.links.TryAcquire(1) {
		_ = gateway.Close()
		return sandbox.Errorf(sandbox.Unavailable, "the worker has too many sandboxes with networks")
	}
	ctx, leave := d.enter(ctx)
	defer leave()
	stream, l, err := d.plug(ctx, id, n, gateway)
	if err != nil {
		d.links.Release(1)
		_ = gateway.Close()
		return err
	}
	d.work.Go(func() {
		defer d.links.Release(1)
		d.run(l, stream)
	})
	return nil
}

// plug gives a box an interface, which it records.
func (d *Driver) plug(ctx context.Context, id sandbox.ID, n driver.NIC, gateway net.Conn) (*yamux.Stream, *link, error) {
	b, err := d.box(id)
	if err != nil {
		return nil, nil, err
	}
	if err := b.plugging.Acquire(ctx, 1); err != nil {
		return nil, nil, context.Cause(ctx)
	}
	defer b.plugging.Release(1)
	b.unlink() // first, so that it is not plugged again
	req := &request{Op: opPlug, ID: id, NIC: &nic{
		Token: rand.Text(), MAC: n.MAC, GatewayMAC: n.GatewayMAC, Address: n.Address, Gateway: n.Gateway, MTU: n.MTU,
	}}
	stream, _, err := d.on(ctx, req, true, d.cfg.Patience)
	if err != nil {
		return nil, nil, err
	}
	b.link = &link{req: req, gateway: gateway, done: make(chan struct{})}
	b.link.life, b.link.end = context.WithCancel(d.life)
	return stream, b.link, nil
}

// Unplug implements [driver.Networker].
func (d *Driver) Unplug(ctx context.Context, id sandbox.ID) error {
	b, err := d.box(id)
	if err != nil {
		return err
	}
	if err := b.plugging.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer b.plugging.Release(1)
	b.unlink()
	_, err = d.about(ctx, &request{Op: opUnplug, ID: id}, true, d.cfg.Patience)
	return err
}

// unlink ends the link of a box, and waits until it plugs nothing more. The caller holds plugging.
func (b *box) unlink() {
	if b.link != nil {
		b.link.end()
		<-b.link.done
		b.link = nil
	}
}

// run carries frames until the link is closed, the box has ended, or the gateway has. It connects the
// interface again after a connection to the worker broke.
func (d *Driver) run(l *link, stream *yamux.Stream) {
	defer close(l.done)
	defer l.gateway.Close()
	defer l.end()
	for {
		stop := context.AfterFunc(l.life, func() { _ = stream.Reset() })
		ended := carry(stream, l.gateway)
		stop()
		_ = stream.Reset()
		if ended || l.life.Err() != nil {
			return
		}
		again, err := l.plugAgain(d)
		if err != nil {
			return
		}
		stream = again
	}
}

// plugAgain connects an interface again, which it tries until the link ends: the worker may be short of something, or
// the box is being saved. Errors: the box is not there.
func (l *link) plugAgain(d *Driver) (*yamux.Stream, error) {
	var warn sync.Once
	return backoff.Retry(l.life, func() (*yamux.Stream, error) {
		s, _, err := d.on(l.life, l.req, true, 0)
		if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Conflict || errors.Is(err, errGone) {
			err = backoff.Permanent(err)
		}
		return s, err
	}, retry.Pauses(50*time.Millisecond, 5*time.Second), retry.Forever(), backoff.WithNotify(func(err error, _ time.Duration) {
		warn.Do(func() {
			if l.life.Err() == nil {
				d.cfg.Log.Warn("cannot connect the interface of a box again, trying on", "box", l.req.ID, "error", err)
			}
		})
	}))
}

// carry carries frames in both directions until one side ends. ended is whether that is the packet
// side. A frame that the packet side does not take within frameTimeout is lost, as on any network.
func carry(stream *yamux.Stream, packets net.Conn) (ended bool) {
	var out sync.WaitGroup
	defer packets.SetReadDeadline(time.Time{})
	defer out.Wait()
	out.Go(func() {
		defer packets.SetReadDeadline(time.Now()) // wakes the loop below
		frame := make([]byte, maxFrame)
		for {
			var head [2]byte
			if _, err := io.ReadFull(stream, head[:]); err != nil {
				return
			}
			n := binary.BigEndian.Uint16(head[:])
			if _, err := io.ReadFull(stream, frame[:n]); err != nil {
				return
			}
			_ = packets.SetWriteDeadline(time.Now().Add(frameTimeout))
			if _, err := packets.Write(frame[:n]); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	})
	frame := make([]byte, 2+maxFrame)
	for {
		n, err := packets.Read(frame[2:])
		if err != nil {
			_ = stream.Reset() // wakes the goroutine
			var timeout net.Error
			return !errors.As(err, &timeout) || !timeout.Timeout()
		}
		if n == 0 {
			continue
		}
		binary.BigEndian.PutUint16(frame, uint16(n))
		if _, err := stream.Write(frame[:2+n]); err != nil {
			_ = stream.Reset() // wakes the goroutine
			return false
		}
	}
}
