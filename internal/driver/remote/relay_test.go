package remote_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is a network between the worker and the control plane that can fail.
type relay struct {
	t  *testing.T
	l  net.Listener
	to string

	mu    sync.Mutex
	flows map[*flow]bool // guarded by mu
	// slow makes the relay deliver small pieces late. Guarded by mu.
	slow bool
	// stuck is closed when bytes for the control plane pass again; nil when they pass. Guarded by mu.
	stuck chan struct{}
}

// flow is a connection through the relay.
type flow struct{ worker, control net.Conn }

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, l: l, to: to, flows: map[*flow]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			worker, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.forward(worker) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.pass()
		r.cut()
		running.Wait()
	})
	return r
}

func (r *relay) forward(worker net.Conn) {
	defer worker.Close()
	control, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer control.Close()
	f := &flow{worker, control}
	r.mu.Lock()
	r.flows[f] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.flows, f)
		r.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() { r.copy(control, worker, true) })
	both.Go(func() { r.copy(worker, control, false) })
	both.Wait()
}

// copy forwards one direction and its end.
func (r *relay) copy(to, from net.Conn, toControl bool) {
	defer to.(*net.TCPConn).CloseWrite()
	buffer := make([]byte, 64<<10)
	for {
		r.mu.Lock()
		slow := r.slow
		r.mu.Unlock()
		piece := buffer
		if slow {
			piece = buffer[:1+rand.IntN(4<<10)]
		}
		n, err := from.Read(piece)
		r.mu.Lock()
		stuck := r.stuck
		r.mu.Unlock()
		if stuck != nil && toControl {
			<-stuck
		}
		if slow && rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(int(2 * time.Millisecond)))) // the fault itself
		}
		if _, werr := to.Write(piece[:n]); werr != nil || err != nil {
			if werr != nil {
				_, _ = io.Copy(io.Discard, from)
			}
			return
		}
	}
}

func (r *relay) slowDown(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = yes
}

// cut resets all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.flows {
		for _, c := range []net.Conn{f.worker, f.control} {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
}

// halfClose ends one direction of all connections.
func (r *relay) halfClose(toControl bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.flows {
		c := f.worker
		if toControl {
			c = f.control
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}
}

// block holds back all bytes for the control plane.
func (r *relay) block() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = make(chan struct{})
}

// pass ends block.
func (r *relay) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuck != nil {
		close(r.stuck)
		r.stuck = nil
	}
}
