// Package conns bounds the connections of clients: in total, for each address, and for each user.
// When there are too many, idle connections of unknown clients are closed first, so that strangers
// cannot keep signed-in clients out.
package conns

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Limits are bounds; 0 means no limit.
type Limits struct {
	// Max is the maximum number of connections.
	Max int
	// PerAddress bounds the connections of an address that are not signed in. An address is an IPv4
	// address or a /64 of IPv6. Behind a trusted proxy the requests in progress of each client count
	// instead.
	PerAddress int
	// PerUser bounds the requests in progress of a user.
	PerUser int
}

// Counts are the numbers of open and of closed connections.
type Counts struct {
	// Idle connections wait for a request, SignedIn and Anonymous serve one; their sum is the
	// total.
	Idle, SignedIn, Anonymous int
	// Refused counts connections closed at once, and Evicted connections closed while idle, since
	// the start.
	Refused, Evicted uint64
	// RefusedRequests counts requests answered with an error, since the start.
	RefusedRequests uint64
}

// Tracker tracks the connections of a server. Safe for concurrent use.
type Tracker struct {
	limits  Limits
	trusted []netip.Prefix

	mu        sync.Mutex
	conns     map[*conn]struct{}  // guarded by mu
	strangers *list.List          // of *conn: idle and not signed in, the oldest first; guarded by mu
	known     *list.List          // of *conn: idle and signed in, the oldest first; guarded by mu
	addresses map[string]*address // guarded by mu
	users     map[string]int      // requests in progress; guarded by mu
	counts    Counts              // of the past; guarded by mu
}

// address has the connections of an address that are not signed in.
type address struct {
	count int
	idle  *list.List // of *conn, oldest first
}

// New returns a tracker. Connections from trusted addresses belong to proxies, which have no limit
// of their own.
func New(limits Limits, trusted []netip.Prefix) *Tracker {
	return &Tracker{
		limits: limits, trusted: trusted, conns: map[*conn]struct{}{}, strangers: list.New(), known: list.New(),
		addresses: map[string]*address{}, users: map[string]int{},
	}
}

// Counts returns the present numbers of connections.
func (t *Tracker) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	for conn := range t.conns {
		switch {
		case !conn.busy:
			c.Idle++
		case conn.signedIn:
			c.SignedIn++
		default:
			c.Anonymous++
		}
	}
	return c
}

// conn is a connection.
type conn struct {
	net.Conn
	tracker *Tracker
	key     string // of its address; "" for a trusted proxy

	// Guarded by tracker.mu.
	busy, signedIn, gone bool
	place                *list.Element // in the list of idle connections; nil when it is busy
	nearby               *list.Element // in the idle list of its address; nil when it is busy or signed in
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.tracker.mu.Lock()
	c.tracker.forget(c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

// listener accepts the connections that are within the limits.
type listener struct {
	net.Listener
	tracker *Tracker
	proxied bool // all connections are of trusted proxies
}

// Listen returns l within the limits.
func (t *Tracker) Listen(l net.Listener) net.Listener { return &listener{l, t, false} }

// ListenProxies returns l within the limits, to which only trusted proxies connect, wherever they are.
func (t *Tracker) ListenProxies(l net.Listener) net.Listener { return &listener{l, t, true} }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		key := ""
		if !l.proxied {
			key = l.tracker.key(c.RemoteAddr().String())
		}
		made, victim := l.tracker.add(c, key)
		if victim != nil {
			_ = victim.Conn.Close() // nobody waits for it
		}
		if made != nil {
			return made, nil
		}
		_ = c.Close()
	}
}

// add returns the tracked connection for c, nil when there are too many, and a victim that must be
// closed for it, if any. key is as in [conn].
func (t *Tracker) add(c net.Conn, key string) (made, victim *conn) {
	made = &conn{Conn: c, tracker: t, key: key}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.addresses[made.key]; a != nil && t.limits.PerAddress > 0 && a.count >= t.limits.PerAddress {
		if victim = oldest(a.idle); victim == nil {
			t.counts.Refused++
			return nil, nil
		}
	} else if t.limits.Max > 0 && len(t.conns) >= t.limits.Max {
		if victim = oldest(t.strangers); victim == nil {
			victim = oldest(t.known)
		}
		if victim == nil {
			t.counts.Refused++
			return nil, nil
		}
	}
	if victim != nil {
		t.forget(victim)
		t.counts.Evicted++
	}
	t.conns[made] = struct{}{}
	t.count(made.key)
	t.rest(made)
	return made, victim
}

func oldest(l *list.List) *conn {
	if l.Len() == 0 {
		return nil
	}
	return l.Front().Value.(*conn)
}

// key returns the key by which an address is counted, "" for a trusted proxy.
func (t *Tracker) key(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := ap.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(t.trusted, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return ""
	}
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// count counts a connection of an address. mu is held.
func (t *Tracker) count(key string) {
	if key == "" {
		return
	}
	a := t.addresses[key]
	if a == nil {
		a = &address{idle: list.New()}
		t.addresses[key] = a
	}
	a.count++
}

// discount is the inverse of count.
func (t *Tracker) discount(key string) {
	if a := t.addresses[key]; a != nil {
		if a.count--; a.count == 0 {
			delete(t.addresses, key)
		}
	}
}

// rest adds a connection to the idle lists. mu is held.
func (t *Tracker) rest(c *conn) {
	c.busy = false
	if c.signedIn {
		c.place = t.known.PushBack(c)
		return
	}
	c.place = t.strangers.PushBack(c)
	if a := t.addresses[c.key]; a != nil {
		c.nearby = a.idle.PushBack(c)
	}
}

// wake removes a connection from the idle lists. mu is held.
func (t *Tracker) wake(c *conn) {
	if c.place != nil {
		t.strangers.Remove(c.place) // does nothing when it is in the other list
		t.known.Remove(c.place)
	}
	if a := t.addresses[c.key]; a != nil && c.nearby != nil {
		a.idle.Remove(c.nearby)
	}
	c.place, c.nearby, c.busy = nil, nil, true
}

// forget removes a connection from all lists. mu is held.
func (t *Tracker) forget(c *conn) {
	if c.gone {
		return
	}
	t.wake(c)
	c.gone = true
	delete(t.conns, c)
	if !c.signedIn {
		t.discount(c.key)
	}
}

// own returns the tracked connection below c, which may be a TLS connection.
func own(c net.Conn) *conn {
	if below, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = below.NetConn()
	}
	made, _ := c.(*conn)
	return made
}

// State implements http.Server.ConnState: it tracks which connections are idle.
func (t *Tracker) State(c net.Conn, state http.ConnState) {
	made := own(c)
	if made == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case made.gone:
	case state == http.StateActive && !made.busy:
		t.wake(made)
	case state == http.StateIdle && made.busy:
		t.rest(made)
	}
}

type contextKey struct{}

// Context implements http.Server.ConnContext: it links requests to their connection.
func (t *Tracker) Context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, own(c))
}

// Begin begins a request, whose RemoteAddr is its client's. It returns a function that must be
// called at most once, when the request's user is known, and a function for the end of the request.
// Errors: QuotaExceeded, of both.
func (t *Tracker) Begin(r *http.Request) (setUser func(user string) error, end func(), err error) {
	c, _ := r.Context().Value(contextKey{}).(*conn)
	key := ""
	if c != nil && c.key == "" { // through a proxy
		key = t.key(r.RemoteAddr)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.addresses[key]; a != nil && t.limits.PerAddress > 0 && a.count >= t.limits.PerAddress {
		t.counts.RefusedRequests++
		return nil, nil, sandbox.Errorf(sandbox.QuotaExceeded, "%d requests without a token are in progress from your address, which is the maximum", t.limits.PerAddress)
	}
	t.count(key)
	q := &request{tracker: t, conn: c, key: key}
	return q.setUser, q.end, nil
}

// request is a request in progress.
type request struct {
	tracker *Tracker
	conn    *conn
	key     string // the address by which the request counts, "" when its connection counts
	user    string // guarded by tracker.mu
}

// setUser sets the user, and stops counting the client among the strangers of its address.
func (q *request) setUser(user string) error {
	t := q.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limits.PerUser > 0 && t.users[user] >= t.limits.PerUser {
		t.counts.RefusedRequests++
		return sandbox.Errorf(sandbox.QuotaExceeded, "%d requests of this user are in progress, which is the maximum", t.limits.PerUser)
	}
	t.users[user]++
	q.user = user
	t.discount(q.key)
	q.key = ""
	if c := q.conn; c != nil && !c.gone && !c.signedIn && c.key != "" {
		c.signedIn = true
		t.discount(c.key)
	}
	return nil
}

// end ends the request.
func (q *request) end() {
	t := q.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discount(q.key)
	if q.user == "" {
		return
	}
	if t.users[q.user]--; t.users[q.user] == 0 {
		delete(t.users, q.user)
	}
}
