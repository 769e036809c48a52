package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// owner is an active server, which works on a part of the sandboxes.
type owner struct {
	*Forwarder
	url  string // for clients
	peer string // the address for other servers
	// served counts the requests that the handler has had.
	served atomic.Int32
}

// newOwner starts an active server with a handler.
func newOwner(t *testing.T, ranges sandbox.Ranges, h edge.Handler) *owner {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	o := &owner{Forwarder: New(Config{
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
		Caller: func(*http.Request) string { return "caller" }, Max: 100, Log: log,
	})}
	t.Cleanup(o.Close)
	front := Arrive(edge.Wrap(log, o.Late(sandbox.Own(ranges), edge.Handler(func(w http.ResponseWriter, r *http.Request) error {
		o.served.Add(1)
		return h(w, r)
	}))))
	clients := httptest.NewServer(front)
	t.Cleanup(func() {
		clients.CloseClientConnections()
		clients.Close()
	})
	o.url, o.peer = clients.URL, active(t, front.ServeHTTP)
	return o
}

// idOf returns the id of a sandbox of a range.
func idOf(part int) sandbox.ID {
	id := sandbox.NewID()
	return id[:len(id)-2] + sandbox.ID(fmt.Sprintf("%x", part)) + id[len(id)-1:]
}

var halves = sandbox.Parts(2)

// pair returns two servers that know each other, each with half of all sandboxes. The first has found out that the second works on its sandbox.
func pair(t *testing.T, before func(w http.ResponseWriter, r *http.Request), second edge.Handler) (a, b *owner) {
	t.Helper()
	a = newOwner(t, halves[0], func(w http.ResponseWriter, r *http.Request) error {
		before(w, r)
		w.Header().Set("X-Dropped", "yes")
		return sandbox.NewElsewhere(idOf(9))
	})
	b = newOwner(t, halves[1], second)
	know(a, b)
	return a, b
}

// know tells two servers where they are.
func know(a, b *owner) {
	for _, o := range []*owner{a, b} {
		o.Lead(Server{Ranges: halves[0], Address: a.peer, Epoch: 1}, Server{Ranges: halves[1], Address: b.peer, Epoch: 1})
	}
}

// released waits until no body of a request takes memory.
func (o *owner) released() {
	for used := int64(1); used != 0; {
		used, _ = o.late.Used()
	}
}

func readAll(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }

// TestFoundElsewhere checks that the owner of a sandbox gets a request as it came, after another server has read it and found that it is the owner's, and that the client gets
// nothing of the other server's answer.
func TestFoundElsewhere(t *testing.T) {
	for name, before := range map[string]func(http.ResponseWriter, *http.Request){
		"body_unread": func(http.ResponseWriter, *http.Request) {},
		"body_begun":  func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 7)) },
		"body_read":   readAll,
		"body_closed": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 7))
			_ = r.Body.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan *http.Request, 1)
			a, _ := pair(t, before, func(w http.ResponseWriter, r *http.Request) error {
				body, err := io.ReadAll(r.Body)
				got <- r
				w.WriteHeader(http.StatusTeapot)
				_, _ = fmt.Fprintf(w, "%d bytes, %v", len(body), err)
				return nil
			})
			resp, body := request(t, "POST", a.url+"/v1/sandboxes/by-name/exec?a=b;c", strings.Repeat("x", 300<<10), finalHeader, "1", clientHeader, "203.0.113.9:1", "X-Forwarded-For", "198.51.100.7")
			if resp.StatusCode != http.StatusTeapot || body != fmt.Sprintf("%d bytes, <nil>", 300<<10) {
				t.Fatalf("the answer is %s %s", resp.Status, body)
			}
			for _, header := range []string{"X-Dropped", "Retry-After", elsewhereHeader} {
				if resp.Header.Get(header) != "" {
					t.Errorf("the answer has %s: %s", header, resp.Header.Get(header))
				}
			}
			r := <-got
			if !strings.HasPrefix(r.RemoteAddr, "127.0.0.1:") || r.RequestURI != "/v1/sandboxes/by-name/exec?a=b;c" || r.Header.Get("X-Forwarded-For") != "198.51.100.7" || r.Header.Get(finalHeader) != "" {
				t.Errorf("the owner got %s from %s, %v", r.RequestURI, r.RemoteAddr, r.Header)
			}
			a.released()
		})
	}
}

// TestForwardedByID checks that a server forwards a request with the id of a sandbox of another server at once, and that the receiver can forward it further by what it finds.
func TestForwardedByID(t *testing.T) {
	a, b := pair(t, readAll, func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(w, "the second server")
		return err
	})
	for _, path := range []string{"/v1/sandboxes/%s", "/sandbox/%s", "/sandbox/sandboxes/%s/events", "/sandboxes/%s/timeout", "/v2/sandboxes/%s/logs", "/e2b/sandboxes/%s/timeout", "/fs/list/%s", "/fs/%s"} {
		if resp, body := request(t, "POST", a.url+fmt.Sprintf(path, idOf(15)), "{}"); body != "the second server" {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if a.served.Load() != 0 {
		t.Errorf("the first server has handled %d requests about sandboxes of the second", a.served.Load())
	}
	if request(t, "GET", a.url+"/s/label/sandboxes/"+string(idOf(15)), ""); a.served.Swap(0) != 1 {
		t.Error("the path of a program in a sandbox names a sandbox")
	}
	// An id that is the name of a sandbox of the second server.
	if resp, body := request(t, "GET", b.url+"/v1/sandboxes/"+string(idOf(3)), ""); body != "the second server" || a.served.Load() != 1 {
		t.Errorf("a name that looks like an id: %s %s", resp.Status, body)
	}
}

// TestNoLoop checks that a request which a server has forwarded by what it found is not forwarded again, but sent again when there is another owner.
func TestNoLoop(t *testing.T) {
	found := make(chan struct{}, 100)
	refuse := func(http.ResponseWriter, *http.Request) error {
		found <- struct{}{}
		return sandbox.NewElsewhere(idOf(1))
	}
	a, b := pair(t, readAll, refuse)
	next := newOwner(t, halves[1], func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(w, r.Body)
		return err
	})
	answered := make(chan string)
	go func() {
		resp, body := request(t, "POST", a.url, "once")
		answered <- resp.Status + body
	}()
	<-found
	for waits := 0; waits == 0; {
		a.mu.Lock()
		waits = a.waits
		a.mu.Unlock()
	}
	if n := a.served.Load(); n != 1 {
		t.Errorf("the first server has handled the request %d times", n)
	}
	a.Lead(Server{Ranges: halves[0], Address: a.peer, Epoch: 1}, Server{Ranges: halves[1], Address: next.peer, Epoch: 2})
	if answer := <-answered; answer != "200 OKonce" {
		t.Errorf("after the owner has changed: %s", answer)
	}
	if a.served.Load() != 1 || b.served.Load() == 0 {
		t.Errorf("the servers have handled the request %d and %d times", a.served.Load(), b.served.Load())
	}
}

// TestNotKept checks that a request is refused, and not sent in part, if another server works on its sandbox and its body is too long to be kept.
func TestNotKept(t *testing.T) {
	a, b := pair(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(http.ResponseWriter, *http.Request) error { return errors.New("it was sent") })
	account := a.Forwarder.late.Open("other")
	if !account.TryTake(maxAllLateKept / 2) {
		t.Fatal("half of the memory is taken")
	}
	resp, body := request(t, "POST", a.url, strings.Repeat("x", maxAllLateKept/3+1))
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Dropped") == "" || b.served.Load() != 0 {
		t.Errorf("%s %s, sent %d times", resp.Status, body, b.served.Load())
	}
	account.Close()
	a.released()
}

// TestBegun checks that an answer that has begun is the client's, whatever the handler finds later.
func TestBegun(t *testing.T) {
	a := newOwner(t, halves[0], func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusOK)
		edge.Log(r.Context(), sandbox.NewElsewhere(idOf(9)))
		_, err := io.WriteString(w, "a part")
		return err
	})
	b := newOwner(t, halves[1], func(http.ResponseWriter, *http.Request) error { return errors.New("it was sent") })
	know(a, b)
	if resp, body := request(t, "POST", a.url, "x"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, "a part") || b.served.Load() != 0 {
		t.Errorf("%s %s, sent %d times", resp.Status, body, b.served.Load())
	}
}

// TestForgedRefusal checks that a program in a sandbox cannot have its answers dropped.
func TestForgedRefusal(t *testing.T) {
	a, b := pair(t, readAll, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set(elsewhereHeader, "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return nil
	})
	if resp, _ := request(t, "POST", a.url, "x"); resp.StatusCode != http.StatusServiceUnavailable || b.served.Load() != 1 {
		t.Errorf("%s, sent %d times", resp.Status, b.served.Load())
	}
}

// TestLateWebSocket checks that a WebSocket leads to a program in the sandbox at its owner, also if the program pretends that the owner refuses it.
func TestLateWebSocket(t *testing.T) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(elsewhereHeader, "1")
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		_ = c.Write(r.Context(), websocket.MessageText, []byte("the second server"))
	}))
	t.Cleanup(program.Close)
	at, err := url.Parse(program.URL)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := pair(t, func(http.ResponseWriter, *http.Request) {}, func(w http.ResponseWriter, r *http.Request) error {
		httputil.NewSingleHostReverseProxy(at).ServeHTTP(w, r)
		return nil
	})
	c, _, err := websocket.Dial(t.Context(), a.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if _, text, err := c.Read(t.Context()); err != nil || string(text) != "the second server" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOwnerAway checks that requests about sandboxes of a server that is away wait for the next, and others do not.
func TestOwnerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Caller: func(*http.Request) string { return "caller" }, Max: 100, Log: slog.New(slog.DiscardHandler), Dial: func(context.Context, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				_ = http.Serve(&oneConn{conn: server}, Accept(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })))
			}()
			return client, nil
		}})
		defer f.Close()
		ask := func(path string) chan int {
			answered := make(chan int, 1)
			go func() {
				w := httptest.NewRecorder()
				edge.Wrap(f.cfg.Log, f).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
				answered <- w.Code
			}()
			synctest.Wait()
			return answered
		}
		f.Lead(Server{Ranges: halves[0], Address: "first:1", Epoch: 1})
		waits := ask("/v1/sandboxes/" + string(idOf(8)))
		select {
		case code := <-waits:
			t.Errorf("without an owner: %d", code)
		default:
		}
		if code := <-ask("/v1/sandboxes/" + string(idOf(7))); code != http.StatusOK {
			t.Errorf("with an owner: %d", code)
		}
		if code := <-ask("/v1/sandboxes"); code != http.StatusOK {
			t.Errorf("a list: %d", code)
		}
		f.Lead(Server{Ranges: halves[0], Address: "first:1", Epoch: 1}, Server{Ranges: halves[1], Address: "second:1", Epoch: 1})
		if code := <-waits; code != http.StatusOK {
			t.Errorf("after a server has the sandboxes: %d", code)
		}
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	net.Listener
	conn net.Conn
}

// Accept implements [net.Listener].
func (l *oneConn) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}

// Close implements [net.Listener].
func (l *oneConn) Close() error { return nil }

// TestSpread checks that a standby has all active servers answer in turn, and leaves out a server that it cannot reach.
func TestSpread(t *testing.T) {
	s := newStandby(t)
	var first, second atomic.Int32
	count := func(n *atomic.Int32) string { return active(t, func(http.ResponseWriter, *http.Request) { n.Add(1) }) }
	one, two := count(&first), count(&second)
	s.Lead(Server{Ranges: halves[0], Address: one, Epoch: 1}, Server{Ranges: halves[1], Address: two, Epoch: 1})
	for range 10 {
		request(t, "POST", s.url+"/v1/sandboxes", "{}")
	}
	if first.Load() != 5 || second.Load() != 5 {
		t.Errorf("the servers have had %d and %d requests", first.Load(), second.Load())
	}
	request(t, "GET", s.url+"/v1/sandboxes/"+string(idOf(0)), "")
	request(t, "GET", s.url+"/v1/sandboxes/"+string(idOf(7))+"/wait", "")
	if first.Load() != 7 {
		t.Error("requests with the id of a sandbox do not get to its server")
	}
	s.Lead(Server{Ranges: halves[0], Address: "127.0.0.1:1", Epoch: 2}, Server{Ranges: halves[1], Address: two, Epoch: 1})
	for range 10 {
		request(t, "POST", s.url+"/v1/sandboxes", "{}")
	}
	if second.Load() != 15 {
		t.Errorf("the second server has had %d requests", second.Load())
	}
}

// TestReplacedPart checks that only the streams of a server that another has replaced are cut off.
func TestReplacedPart(t *testing.T) {
	s := newStandby(t)
	end := make(chan struct{})
	stream := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-end
	}
	one, two := active(t, stream), active(t, stream)
	t.Cleanup(func() { close(end) }) // before the servers close
	s.Lead(Server{Ranges: halves[0], Address: one, Epoch: 1}, Server{Ranges: halves[1], Address: two, Epoch: 1})
	open := func(part int) io.Reader {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/sandboxes/"+string(idOf(part)), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return resp.Body
	}
	lost, other := open(3), open(12)
	s.Lead(Server{Ranges: halves[1], Address: two, Epoch: 1})
	s.Lead(Server{Ranges: halves[0], Address: one, Epoch: 2}, Server{Ranges: halves[1], Address: two, Epoch: 1})
	if _, err := lost.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream of the replaced server ends with %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := other.Read(make([]byte, 1))
		ended <- err
	}()
	if s.last[12].gone.Err() != nil {
		t.Error("the other server counts as replaced")
	}
	select {
	case err := <-ended:
		t.Errorf("the stream of the other server ends with %v", err)
	default:
	}
}

// TestPassedOn checks that the record of a request says that another server answers it.
func TestPassedOn(t *testing.T) {
	var record *access.Record
	a, _ := pair(t, func(_ http.ResponseWriter, r *http.Request) { record = access.FromContext(r.Context()) }, func(http.ResponseWriter, *http.Request) error { return nil })
	if resp, body := request(t, "GET", a.url, ""); resp.StatusCode != http.StatusOK || !record.PassedOn() {
		t.Errorf("%s %s, passed on: %v", resp.Status, body, record.PassedOn())
	}
}

// TestAskAround checks that all other servers get a request about something that any of them may have, until one has it, and that the client gets their refusal if none has it.
func TestAskAround(t *testing.T) {
	parts := sandbox.Parts(4)
	var list []Server
	var all []*owner
	for i, ranges := range parts {
		o := newOwner(t, ranges, func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Path != fmt.Sprintf("/%d", i) {
				err := sandbox.Somewhere("there is no %s", r.URL.Path)
				if r.Header.Get("Dialect") == "" {
					return err
				}
				edge.Log(r.Context(), err)
				_, writeErr := io.WriteString(w, err.Message) // with the status 200
				return writeErr
			}
			body, err := io.ReadAll(r.Body)
			if err == nil {
				_, err = fmt.Fprintf(w, "%d has %d bytes", i, len(body))
			}
			return err
		})
		all, list = append(all, o), append(list, Server{Ranges: ranges, Address: o.peer, Epoch: 1})
	}
	for _, o := range all {
		o.Lead(list...)
	}
	for i := range 4 {
		body := strings.Repeat("x", 100<<10*i)
		if resp, answer := request(t, "POST", all[0].url+fmt.Sprintf("/%d", i), body); answer != fmt.Sprintf("%d has %d bytes", i, len(body)) {
			t.Errorf("what server %d has: %s %s", i, resp.Status, answer)
		}
	}
	if _, answer := request(t, "GET", all[0].url+"/2", "", "Dialect", "x"); answer != "2 has 0 bytes" {
		t.Errorf("what server 2 has, in a dialect: %s", answer)
	}
	if resp, answer := request(t, "GET", all[0].url+"/9", "", "Dialect", "x"); answer != "there is no /9" || resp.StatusCode != http.StatusOK {
		t.Errorf("what no server has, in a dialect: %s %s", resp.Status, answer)
	}
	for _, o := range all {
		o.served.Store(0)
	}
	if resp, answer := request(t, "GET", all[2].url+"/9", ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(answer, "there is no /9") || resp.Header.Get(elsewhereHeader) != "" {
		t.Errorf("what no server has: %s %s %v", resp.Status, answer, resp.Header)
	}
	for i, o := range all {
		if n := o.served.Load(); n != 1 {
			t.Errorf("server %d has had the request %d times", i, n)
		}
	}
	all[2].Lead(list[0], list[2], list[3])
	if resp, answer := request(t, "GET", all[2].url+"/9", ""); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("what a server that is away may have: %s %s", resp.Status, answer)
	}
	if _, answer := request(t, "GET", all[2].url+"/3", ""); answer != "3 has 0 bytes" {
		t.Errorf("what a server has while another is away: %s", answer)
	}
}

// TestAskedInVain checks that a client that guesses does not have the other servers asked again and again.
func TestAskedInVain(t *testing.T) {
	refuse := func(_ http.ResponseWriter, r *http.Request) error {
		if r.URL.Path == "/there" {
			return nil
		}
		return sandbox.Somewhere("there is no %s", r.URL.Path)
	}
	a := newOwner(t, halves[0], func(http.ResponseWriter, *http.Request) error { return sandbox.Somewhere("it is not here") })
	b := newOwner(t, halves[1], refuse)
	know(a, b)
	for range maxVain + 10 { // these requests are no guesses
		if resp, body := request(t, "GET", a.url+"/there", ""); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Status, body)
		}
	}
	b.served.Store(0)
	for range maxVain + 10 {
		if resp, body := request(t, "GET", a.url+"/guess", ""); resp.StatusCode != http.StatusNotFound {
			t.Fatalf("%s %s", resp.Status, body)
		}
	}
	if n := b.served.Load(); n != maxVain {
		t.Errorf("the other server was asked %d times, want %d", n, maxVain)
	}
	now := time.Now()
	for i := range 2 * maxAskers {
		a.asks.inVain(fmt.Sprint(i))
	}
	if n := len(a.asks.vain); n > maxAskers+1 {
		t.Errorf("%d clients are counted", n)
	}
	a.asks.begun = now.Add(-2 * askTime)
	if !a.asks.permit("caller") {
		t.Error("a client may have nothing asked after its time")
	}
}

// TestAddressBehindProxy checks that the owner gets the address of the operator's proxy, by which it judges what the proxy says of the client, as the first server has done.
func TestAddressBehindProxy(t *testing.T) {
	got := make(chan string, 1)
	a := newOwner(t, halves[0], nil)
	a.Lead(Server{Ranges: halves[1], Address: active(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.RemoteAddr }), Epoch: 1})
	front := a.Late(sandbox.Own(halves[0]), edge.Handler(func(http.ResponseWriter, *http.Request) error { return sandbox.NewElsewhere(idOf(9)) }))
	h := Arrive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "203.0.113.7:0" // as auth.Forwarded
		edge.Wrap(a.cfg.Log, front).ServeHTTP(w, r)
	}))
	for _, path := range []string{"/v1/sandboxes/name", "/v1/sandboxes/" + string(idOf(9))} {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = "198.51.100.1:5"
		h.ServeHTTP(httptest.NewRecorder(), r)
		if address := <-got; address != "198.51.100.1:5" {
			t.Errorf("%s came from %s", path, address)
		}
	}
}
