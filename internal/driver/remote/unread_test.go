package remote_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
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
