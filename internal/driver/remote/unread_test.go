package remote_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestABoxThatDoesNotRead checks that a box that takes nothing keeps its worker neither from another connection to the
// control plane nor from its end.
func TestABoxThatDoesNotRead(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *rig) net.Conn{
		"Connection": func(t *testing.T, r *rig) net.Conn {
			id := r.started(t)
			inside, err := r.host.Listen(id, 8080)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { inside.Close() })
			c, err := r.Control().Dial(within(t), id, 8080)
			if err != nil {
				t.Fatalf("Dial() = %v", err)
			}
			t.Cleanup(func() { c.Close() })
			accepted, err := inside.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { accepted.Close() })
			return c
		},
		"Interface": func(t *testing.T, r *rig) net.Conn { return r.plug(t, r.started(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := open(t, r)
			end := time.Now().Add(time.Second)
			for time.Now().Before(end) { // longer than everything on the way is full
				_ = c.SetWriteDeadline(end)
				if _, err := c.Write(make([]byte, 1514)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("Write() = %v", err)
				}
			}
			r.relay.cut()
			if _, err := r.Control().List(within(t)); err != nil {
				t.Errorf("List() on the next connection = %v", err)
			}
			stopped := make(chan struct{})
			go func() { r.StopWorker(); close(stopped) }()
			select {
			case <-stopped:
			case <-within(t).Done():
				t.Fatal("the worker does not end")
			}
		})
	}
}

// TestAnInterfaceIsRefused checks that an interface is connected again that the worker cannot connect at first.
func TestAnInterfaceIsRefused(t *testing.T) {
	r := newRig(t)
	id := r.started(t)
	gateway := r.plug(t, id)
	r.StopWorker()
	var calls atomic.Int32
	r.host.SetFaults(fake.Faults{Plug: func(context.Context, sandbox.ID) error {
		switch calls.Add(1) {
		case 1:
			return errors.New("too many open files")
		case 2:
			return sandbox.Errorf(sandbox.Unavailable, "the sandbox does not take a network interface")
		}
		return nil
	}})
	r.StartWorker(t)
	r.wantFrames(t, id, gateway)
}
