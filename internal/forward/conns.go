package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// greetTimeout bounds the time in which a forwarded connection says whose it is.
	greetTimeout = 10 * time.Second
	// maxGreeting is longer than an address with a port.
	maxGreeting = 128
)

// ServeConns passes the connections that l accepts, of a protocol other than HTTP, on to the active server, until l is closed. The first line to that server is the
// address of the client, for [AcceptConns].
func (f *Forwarder) ServeConns(l net.Listener, dial func(ctx context.Context, address string) (net.Conn, error)) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if f.begin() != nil {
			_ = conn.Close()
			continue
		}
		go func() {
			defer f.finish()
			defer conn.Close()
			if err := f.carry(conn, dial); err != nil {
				f.cfg.Log.Debug("forward a connection", "client", conn.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

// carry copies in both directions between a client and the active server, until one of them ends the connection or another server is active.
func (f *Forwarder) carry(client net.Conn, dial func(ctx context.Context, address string) (net.Conn, error)) error {
	caller := f.cfg.Caller(&http.Request{RemoteAddr: client.RemoteAddr().String()})
	active, to, err := f.connect(caller, dial)
	if err != nil {
		return err
	}
	defer active.Close()
	defer context.AfterFunc(to.gone, func() {
		_ = active.Close()
		_ = client.Close()
	})()
	if _, err := fmt.Fprintln(active, client.RemoteAddr()); err != nil {
		return err
	}
	var both sync.WaitGroup
	copied := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		half, ok := to.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			_ = to.Close()
			_ = from.Close()
		}
	}
	both.Go(func() { copied(active, client) })
	both.Go(func() { copied(client, active) })
	both.Wait()
	return nil
}

// connect connects to the active server, and waits for it while it is away.
func (f *Forwarder) connect(caller string, dial func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, *server, error) {
	release, err := f.addWaiter(caller)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	until := time.Now().Add(MaxWait)
	var tried []*server
	for {
		to, changed := f.server(anywhere, tried)
		if to != nil {
			ctx, cancel := context.WithTimeout(f.closed, dialTimeout)
			conn, err := dial(ctx, to.address)
			cancel()
			if err == nil {
				return conn, to, nil
			}
			tried = append(tried, to)
		}
		if err := f.wait(f.closed, until, changed, to != nil); err != nil {
			return nil, nil, err
		}
	}
}

// AcceptConns returns a listener for connections that [Forwarder.ServeConns] passes on, with the addresses of their clients. Only other servers may reach l.
func AcceptConns(l net.Listener) net.Listener {
	a := &acceptor{Listener: l, conns: make(chan net.Conn), closed: make(chan struct{})}
	go a.run()
	return a
}

// acceptor waits for the greetings of connections, each on its own.
type acceptor struct {
	net.Listener
	conns  chan net.Conn
	closed chan struct{} // closed when the listener is
	err    error         // final then
}

func (a *acceptor) run() {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			a.err = err
			close(a.closed)
			return
		}
		go func() {
			greeted, err := greet(conn)
			if err != nil {
				_ = conn.Close()
				return
			}
			select {
			case a.conns <- greeted:
			case <-a.closed:
				_ = conn.Close()
			}
		}()
	}
}

// Accept implements [net.Listener].
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.closed:
		return nil, a.err
	}
}

// greet reads the address of the client.
func greet(conn net.Conn) (net.Conn, error) {
	_ = conn.SetReadDeadline(time.Now().Add(greetTimeout))
	r := bufio.NewReaderSize(conn, maxGreeting)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, errors.Join(errors.New("the address of the client is missing"), err)
	}
	at, err := netip.ParseAddrPort(strings.TrimSpace(string(line)))
	if err != nil {
		return nil, err
	}
	return &greeted{conn, r, net.TCPAddrFromAddrPort(at)}, conn.SetReadDeadline(time.Time{})
}

// greeted is a connection of a client.
type greeted struct {
	net.Conn
	r      *bufio.Reader // of the connection
	remote net.Addr
}

// Read implements [net.Conn].
func (g *greeted) Read(p []byte) (int, error) { return g.r.Read(p) }

// RemoteAddr implements [net.Conn]: the address of the client.
func (g *greeted) RemoteAddr() net.Addr { return g.remote }
