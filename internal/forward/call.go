package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/share"
)

const (
	// clientHeader has the address from which a request came to the first server, with the port.
	clientHeader = "Modbox-Client-Address"
	// finalHeader marks a request that the receiver does not forward any more.
	finalHeader = "Modbox-Forwarded"
	// elsewhereHeader marks the refusal of such a request whose sandbox another server works on.
	elsewhereHeader = "Modbox-Elsewhere"
)

// keyHeader makes a create safe to send again.
const keyHeader = "Idempotency-Key"

// creates is the path of the only operation of the API that has idempotency keys.
const creates = "/v1/sandboxes"

// call is a request that is being forwarded.
type call struct {
	forwarder *Forwarder
	caller    string
	peer      string
	answer    http.Header
	// part is the range whose owner answers, or [anywhere].
	part int
	// hop tells the next server whether it may forward the request.
	hop hop
	// ask is whether each of the other servers gets the request, until a server does not refuse it. not are the servers that do not get it.
	ask bool
	not []*server
	// last is whether a refusal is the answer.
	last bool
	// cut ends the request, with the connections of both sides.
	cut context.CancelFunc
	// idempotent is whether the request may be executed twice; body is its whole body then.
	idempotent bool
	body       []byte
	// ends are called at the end of the request.
	ends []func()
}

type callKey struct{}

// ServeHTTP passes a request on, in the wrapper of [edge.Options], which bounds the time of its body and its answer.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{forwarder: f, caller: f.cfg.Caller(r), peer: peer(r), answer: w.Header(), part: partOf(r)}
	account := f.kept.Open(c.caller)
	defer account.Close()
	if err := c.keep(r, account); err != nil {
		edge.Error(w, r, err)
		return
	}
	c.serve(w, r)
}

// serve has another server answer a request.
func (c *call) serve(w http.ResponseWriter, r *http.Request) {
	f := c.forwarder
	if err := f.begin(); err != nil {
		edge.Error(w, r, err)
		return
	}
	defer f.finish()
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	c.cut = cut
	defer c.end()
	access.FromContext(ctx).LetBodyRest(edge.InputIdleTime) // the active server knows how long the body may be silent
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).EnableFullDuplex() // answers may begin while the body comes; a transport without, as in tests
	}
	f.reverse.ServeHTTP(w, r.WithContext(context.WithValue(ctx, callKey{}, c)))
}

// end releases what attempts have begun.
func (c *call) end() {
	for _, end := range c.ends {
		end()
	}
}

// keep finds out whether the request may be executed twice, and reads the body of a create with a key.
func (c *call) keep(r *http.Request, account *share.Account) error {
	if r.Body == nil || r.Body == http.NoBody {
		c.idempotent = len(r.Header["Upgrade"]) == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead)
		return nil
	}
	if r.Method != http.MethodPost || r.URL.Path != creates || r.Header.Get(keyHeader) == "" || r.ContentLength < 0 || r.ContentLength > maxKept || !account.TryTake(r.ContentLength) {
		return nil
	}
	c.body = make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, c.body)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = sandbox.Wrap(sandbox.Invalid, err, "the body broke off before its end")
	}
	c.idempotent = err == nil
	return err
}

// rewrite makes the request that the active server gets: all is as the client has sent it, but the headers of the hop between two servers.
func rewrite(r *httputil.ProxyRequest) {
	c := r.In.Context().Value(callKey{}).(*call)
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	r.Out.Header.Set(clientHeader, c.peer)
	r.Out.Header.Del(finalHeader)
	if c.hop == final {
		r.Out.Header.Set(finalHeader, "1")
	}
	if c.idempotent {
		return
	}
	for _, name := range []string{keyHeader, "X-" + keyHeader} { // with these names net/http sends a request without a body again
		if values, ok := r.Out.Header[name]; ok {
			delete(r.Out.Header, name)
			r.Out.Header[strings.ToLower(name)] = values
		}
	}
}

// RoundTrip sends a request to an active server, and waits for it while it is away. It implements [http.RoundTripper].
func (f *Forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	c := r.Context().Value(callKey{}).(*call)
	if c.ask {
		return c.askAround(r)
	}
	var until time.Time // the end of the wait; zero before it begins
	var tried []*server
	for {
		to, changed := f.server(c.part, tried)
		if to != nil {
			resp, again, err := c.attempt(r, to)
			if err == nil || !again {
				return resp, err
			}
			tried = append(tried, to)
			if other, _ := f.server(c.part, tried); !slices.Contains(tried, other) {
				continue
			}
		}
		if until.IsZero() {
			release, err := f.addWaiter(c.caller)
			if err != nil {
				return nil, err
			}
			defer release()
			until = time.Now().Add(MaxWait)
		}
		if err := f.wait(r.Context(), until, changed, to != nil); err != nil {
			return nil, err
		}
	}
}

// askAround sends a request to the other servers, until one does not refuse it. The last refusal is the answer if each server has refused it.
func (c *call) askAround(r *http.Request) (*http.Response, error) {
	f, missing := c.forwarder, c.forwarder.alone()
	for {
		to, _ := f.server(anywhere, c.not)
		if to == nil || slices.Contains(c.not, to) {
			f.asks.inVain(c.caller)
			return nil, unavailable(nil, "a server that may have what the request names is away at this moment")
		}
		c.not = append(c.not, to)
		next, _ := f.server(anywhere, c.not)
		c.last = !missing && (next == nil || slices.Contains(c.not, next))
		resp, again, err := c.attempt(r, to)
		if err == nil || !again {
			return resp, err
		}
		missing = missing || !errors.As(err, new(refused))
	}
}

// attempt sends a request to a server once. again is whether it may be sent again after an error.
func (c *call) attempt(r *http.Request, to *server) (resp *http.Response, again bool, err error) {
	var sent atomic.Bool
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	stop := context.AfterFunc(to.gone, cancel) // the answer ends with ctx
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "https", to.address
	var body *countedBody
	switch {
	case c.body != nil:
		out.Body, out.GetBody = io.NopCloser(bytes.NewReader(c.body)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
	case r.Body != nil && r.Body != http.NoBody:
		body = &countedBody{body: r.Body}
		out.Body = body
		if c.ask {
			out.Header.Set("Expect", "100-continue") // a server that refuses it does not get the body
		}
	}
	resp, err = c.forwarder.transport.RoundTrip(out)
	used := sent.Load() || body != nil && body.used.Load()
	// The status of a refusal is 200 in some dialects. Answers of programs in sandboxes have lost the header, but for the answer that begins another protocol.
	if err == nil && c.hop == final && resp.StatusCode != http.StatusSwitchingProtocols && resp.Header.Get(elsewhereHeader) != "" {
		resp.Header.Del(elsewhereHeader)
		if c.last {
			c.forwarder.asks.inVain(c.caller)
		}
		if !c.last && (body == nil || !body.used.Load()) {
			_ = resp.Body.Close()
			err = refused{errors.New("the server does not have what the request names yet, or not any more")}
		}
	}
	if err != nil {
		stop()
		cancel()
		if used && c.part == anywhere && !c.ask {
			c.part = to.ranges.First() // only this server, or the next owner of its sandboxes, may have executed it
		}
		return nil, c.again(r, err, used), err
	}
	cut := context.AfterFunc(to.gone, c.cut) // connections of another protocol end with the request
	c.ends = append(c.ends, func() {
		stop()
		cut()
		cancel()
	})
	c.answer.Del(edge.RequestIDHeader) // the active server has given the request an id, which is in its log
	return resp, false, nil
}

// again reports whether a request may be sent again after an error: nothing was sent, or it does no harm to execute it twice.
func (c *call) again(r *http.Request, err error, sent bool) bool {
	switch {
	case r.Context().Err() != nil:
		return false
	case errors.As(err, new(unreached)), errors.As(err, new(refused)):
		return true
	case sandbox.CodeOf(err) != sandbox.Internal: // of the client's body
		return false
	}
	return !sent || c.idempotent
}

// countedBody is the body of an attempt, which leaves the client's body open for the next.
type countedBody struct {
	body io.Reader
	used atomic.Bool
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	b.used.Store(true)
	return b.body.Read(p)
}

// Close implements [io.Closer].
func (b *countedBody) Close() error { return nil }

// failed answers a request that has no answer of the active server.
func (f *Forwarder) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && sandbox.CodeOf(err) == sandbox.Internal {
		panic(http.ErrAbortHandler) // the client is gone
	}
	if sandbox.CodeOf(err) == sandbox.Internal {
		f.metrics.lost.Inc()
		err = sandbox.Wrap(sandbox.Unavailable, err, "the connection to the active server was lost before it answered, and it is not known whether the request was executed")
	}
	edge.Error(w, r, err)
}

// Accept returns the handler of requests that other servers forward: next gets them as from their clients. Only other servers may reach it.
func Accept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := r.Header.Get(clientHeader)
		if _, err := netip.ParseAddrPort(client); err != nil {
			http.Error(w, "a forwarded request has the address of its client in "+clientHeader, http.StatusBadRequest)
			return
		}
		r.RemoteAddr = client
		h := first
		if r.Header.Get(finalHeader) != "" {
			h = final
		}
		r.Header.Del(clientHeader)
		r.Header.Del(finalHeader)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hopKey{}, h)))
	})
}
