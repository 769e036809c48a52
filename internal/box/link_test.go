package box_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/box"
)

// gateway is a gateway whose dials fail, with ctx if failure is nil.
type gateway struct {
	failure       error
	dials, closes atomic.Int32
}

func (*gateway) Traffic() (sent, received int64) { return 1, 2 }

func (g *gateway) Close() { g.closes.Add(1) }

func (g *gateway) Dial(ctx context.Context, _ uint16) (net.Conn, error) {
	g.dials.Add(1)
	if g.failure != nil {
		return nil, g.failure
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestLinkSkipsASilentGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l box.Link
		g := &gateway{}
		l.ConnectInward(g)
		dial := func(want int32) {
			t.Helper()
			if _, ok := l.Dial(t.Context(), 80, time.Second); ok || g.dials.Load() != want {
				t.Errorf("Dial() = %v after %d dials of the gateway, want false after %d", ok, g.dials.Load(), want)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = l.Dial(gone, 80, time.Second) // says nothing about the gateway
		dial(2)
		begun := time.Now()
		dial(2)
		if d := time.Since(begun); d != 0 {
			t.Errorf("a dial of a silent gateway waits for %s", d)
		}
		time.Sleep(5 * time.Second)
		dial(3)
		other := &gateway{failure: syscall.ECONNREFUSED}
		l.ConnectInward(other)
		if _, ok := l.Dial(t.Context(), 80, time.Second); ok || other.dials.Load() != 1 {
			t.Errorf("the next gateway was dialed %d times, want once", other.dials.Load())
		}
	})
}

func TestLinkRemovesADeadGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l box.Link
		g := &gateway{failure: fmt.Errorf("connect: %w", net.ErrClosed)}
		l.Connect(g)
		if _, ok := l.Dial(t.Context(), 80, time.Second); ok || l.Attached() || g.closes.Load() != 1 {
			t.Errorf("Dial() = %v, attached: %v, closed %d times; want the gateway removed", ok, l.Attached(), g.closes.Load())
		}
		if sent, received := l.Traffic(); sent != 1 || received != 2 {
			t.Errorf("Traffic() = %d, %d; want that of the removed gateway", sent, received)
		}
		if l.MayTryInward() {
			t.Error("another interface may be made at once")
		}
		time.Sleep(time.Minute + time.Nanosecond)
		if !l.MayTryInward() {
			t.Error("no other interface may be made a minute later")
		}
	})
}
