package forward

import (
	"bufio"
	"context"
	"encoding/base64"
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
	// maxGreeting is longer than an address with a port and a login.
	maxGreeting = 16 << 10
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
	active, to, err := f.connect(f.closed, anywhere, caller, dial)
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

// Open connects to the owner of a range, in a protocol other than HTTP, for a client at an address, and waits for it while it is away. The owner gets
// login by the method Vouched of the connection. The connection ends when another server is active in place of the owner. Errors: Unavailable.
func (f *Forwarder) Open(ctx context.Context, part int, client net.Addr, login []byte, dial func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, error) {
	if err := f.begin(); err != nil {
		return nil, err
	}
	conn, to, err := f.connect(ctx, part, f.cfg.Caller(&http.Request{RemoteAddr: client.String()}), dial)
	if err == nil {
		if _, err = fmt.Fprintln(conn, client, base64.StdEncoding.EncodeToString(login)); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		f.finish()
		return nil, err
	}
	stop := context.AfterFunc(to.gone, func() { _ = conn.Close() })
	return &opened{Conn: conn, end: sync.OnceFunc(func() {
		stop()
		f.finish()
	})}, nil
}

// opened is a connection to the owner of a range.
type opened struct {
	net.Conn
	end func()
}

// Close implements [net.Conn].
func (o *opened) Close() error {
	o.end()
	return o.Conn.Close()
}

// connect connects to an active server, and waits for it while it is away.
func (f *Forwarder) connect(ctx context.Context, part int, caller string, dial func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, *server, error) {
	release, err := f.addWaiter(caller)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	until := time.Now().Add(MaxWait)
	var tried []*server
	for {
		to, changed := f.server(part, tried)
		if to != nil {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			conn, err := dial(ctx, to.address)
			cancel()
			if err == nil {
				return conn, to, nil
			}
			tried = append(tried, to)
		}
		if err := f.wait(ctx, until, changed, to != nil); err != nil {
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
	address, text, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	login, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return &greeted{conn, r, net.TCPAddrFromAddrPort(at), login}, conn.SetReadDeadline(time.Time{})
}

// greeted is a connection of a client.
type greeted struct {
	net.Conn
	r      *bufio.Reader // of the connection
	remote net.Addr
	login  []byte
}

// Read implements [net.Conn].
func (g *greeted) Read(p []byte) (int, error) { return g.r.Read(p) }

// Vouched returns the login of the client at the server that has opened the connection; nothing if it has not logged in yet.
func (g *greeted) Vouched() []byte { return g.login }

// RemoteAddr implements [net.Conn]: the address of the client.
func (g *greeted) RemoteAddr() net.Addr { return g.remote }
