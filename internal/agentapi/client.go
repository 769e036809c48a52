package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrBadAnswer is in the chain of errors about an agent that sent an invalid answer, too large
	// an answer, or none on a working connection.
	ErrBadAnswer = errors.New("the agent gave no valid answer")
	// ErrUnreachable is in the chain of errors about a connection that broke or could not be
	// established. The error of the dial function is in the chain also.
	ErrUnreachable = errors.New("the agent cannot be reached")
)

// defaultMemory is enough for the maximum number of streams of a client.
const defaultMemory = 128 << 20

// maxMessage bounds the message of an agent's error.
const maxMessage = 1 << 10

// DialFunc opens a connection to the agent. The connection outlives ctx.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Client makes calls to an agent. It is safe for concurrent use. It dials when there is a call to
// make, uses several connections so that stalled streams never block others, and dials again after
// a break.
//
// Every call ends when its context does. Errors are an [*Error] when the agent refused, and
// otherwise have [ErrUnreachable], [ErrBadAnswer] or the context's error in their chain.
// ErrUnreachable includes agents that answer nothing for longer than [Memory.SetAnswerTimeout]
// permits. A call is repeated, if that is safe, when it got no answer because an idle connection
// was dead or a new connection stayed silent for seconds.
//
// The embedded [Files] are the calls on files of the whole sandbox.
type Client struct {
	Files
	pool    *pool
	sockets sync.Map // of transports, by the path of a socket
}

// NewClient returns a client for the agent that dial reaches, with memory of its own.
func NewClient(dial DialFunc) *Client { return NewMemory(defaultMemory).NewClient(dial) }

// Close closes all connections; calls, streams and tunnels in progress fail. It does not end
// processes in the sandbox. Later calls fail with [ErrUnreachable].
func (c *Client) Close() error {
	c.pool.closeAll()
	return nil
}

// Reset closes all connections, because dial reaches another agent from now on: calls in progress
// fail with [ErrUnreachable], later calls dial again.
func (c *Client) Reset() { c.pool.reset() }

// Health checks whether the agent answers.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	err := c.call(ctx, request{method: http.MethodGet, path: "/health", again: true}, &h)
	return h, err
}

// Configure sets environment and defaults of later processes; the first call also starts the main
// process. It is idempotent.
func (c *Client) Configure(ctx context.Context, cfg Config) error {
	return c.callJSON(ctx, "/configure", cfg, true)
}

// Signal sends a signal to a process and its group, and SIGKILL to all its descendants that can be
// found; the answer to SIGKILL waits, for some seconds at most, until the process has ended.
// CodeNotFound when no such process runs.
func (c *Client) Signal(ctx context.Context, processID string, signal int) error {
	return c.callJSON(ctx, processPath(processID, "signal"), SignalRequest{Signal: signal}, false)
}

// Terminate sends SIGTERM to a process and its group, and after grace SIGKILL to what remains of it
// and all its descendants that can be found; when it ends earlier, its descendants are killed then.
// CodeNotFound when no such process runs.
func (c *Client) Terminate(ctx context.Context, processID string, grace time.Duration) error {
	return c.callJSON(ctx, processPath(processID, "signal"), SignalRequest{Signal: int(syscall.SIGTERM), Grace: grace}, true)
}

// Processes lists the processes that the agent started: all that run and the last that ended,
// oldest first.
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) {
	var list []ProcessInfo
	err := c.call(ctx, request{method: http.MethodGet, path: "/processes", again: true}, &list)
	return list, err
}

// Resize sets the size of a process's terminal; CodeInvalid when it has none.
func (c *Client) Resize(ctx context.Context, processID string, size Size) error {
	return c.callJSON(ctx, processPath(processID, "resize"), size, true)
}

func processPath(id, verb string) string {
	return "/processes/" + url.PathEscape(id) + "/" + verb
}

// request is a call to the agent.
type request struct {
	method string
	path   string
	query  url.Values
	header http.Header
	// body returns the body, a new reader for each attempt; nil for none. size is its length, or -1
	// when it is not known.
	body func() io.ReadCloser
	size int64
	// transfer is whether the answer contains the content of files.
	transfer bool
	// large is whether there is much content, or may be, in either direction.
	large bool
	// tunnel is whether the call turns a connection of its own, if it gets one, into a tunnel.
	tunnel bool
	// again is whether repeating the call is harmless.
	again bool
}

// answer is an answer of the agent with status 2xx, or 101 to a tunnel on a connection of its own. Its owner calls close at the end.
type answer struct {
	*http.Response
	conn *conn
	paid int64 // bytes reserved for it in addition to its stream
	once sync.Once
	stop context.CancelFunc
	// unwatch stops watching the context. HTTP/2 itself does not watch it while it waits for more
	// of a request's body.
	unwatch func() bool
}

// close releases the stream, whatever the agent does.
func (a *answer) close() {
	a.once.Do(func() {
		a.unwatch()
		a.stop()
		a.Body.Close()
		a.repay()
		a.conn.pool.release(a.conn)
	})
}

// done releases the stream of an answer that was read to its end, without telling the agent to
// stop.
func (a *answer) done() {
	a.once.Do(func() {
		a.unwatch()
		a.Body.Close()
		a.stop()
		a.repay()
		a.conn.pool.release(a.conn)
	})
}

// callJSON posts v and expects an answer without content.
func (c *Client) callJSON(ctx context.Context, path string, v any, again bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("agent %s: %w", path, err)
	}
	return c.call(ctx, request{method: http.MethodPost, path: path, body: bytesBody(data), size: int64(len(data)), again: again}, nil)
}

func bytesBody(data []byte) func() io.ReadCloser {
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }
}

// call makes a call whose answer is JSON and decodes it into v, or ignores it when v is nil.
func (c *Client) call(ctx context.Context, r request, v any) error {
	a, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer a.close()
	data, err := a.json(MaxJSON)
	if err != nil {
		return c.explain(ctx, r, a.conn, err)
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("%w: %s %s: %w", ErrBadAnswer, r.method, r.path, err)
		}
	}
	a.done()
	return nil
}

// open makes a call and returns its answer once the headers have arrived. ctx applies until the
// answer is closed.
func (c *Client) open(ctx context.Context, r request) (_ *answer, err error) {
	if observe := c.pool.shared.observe; observe != nil {
		traceparent, end := observe(ctx, r.method, r.path)
		if end != nil {
			defer func() { end(err) }()
		}
		if traceparent != "" {
			r.header = r.header.Clone()
			if r.header == nil {
				r.header = http.Header{}
			}
			r.header.Set("Traceparent", traceparent)
		}
	}
	var avoid *conn
	for {
		conn, fresh, err := c.pool.acquire(ctx, avoid, r)
		if err != nil {
			return nil, err
		}
		a, sent, err := c.attempt(ctx, r, conn)
		if err == nil {
			return a, nil
		}
		c.pool.release(conn)
		if errors.Is(err, errNoUpgrade) {
			c.pool.shareTunnels()
			continue
		}
		stale := (!fresh || conn.silent.Load()) && !conn.mute.Load() && avoid == nil && ctx.Err() == nil && errors.Is(err, ErrUnreachable)
		if !stale || sent && !r.again {
			return nil, err
		}
		avoid = conn
	}
}

// errNoUpgrade reports an agent that knows tunnels by HTTP/2 only.
var errNoUpgrade = fmt.Errorf("%w: it does not make the connection a tunnel", ErrBadAnswer)

// attempt makes a call on a connection. sent is whether the agent may have seen it.
func (c *Client) attempt(ctx context.Context, r request, conn *conn) (a *answer, sent bool, err error) {
	reqCtx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	var body io.ReadCloser
	upgrade := r.tunnel && conn.single
	if r.body != nil && !upgrade {
		body = r.body()
		if conn.single {
			// Unlike HTTP/2, the transport waits for a blocked read of the body when the connection has ended.
			go func() {
				select {
				case <-conn.over:
				case <-reqCtx.Done():
				}
				_ = body.Close()
			}()
		} else {
			body = requestBody{body}
		}
	}
	u := url.URL{Scheme: "http", Host: "agent", Path: r.path, RawQuery: r.query.Encode()}
	// The transport may still be writing after RoundTrip has given up.
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(reqCtx, trace), r.method, u.String(), body)
	if err != nil {
		return nil, false, fmt.Errorf("agent %s %s: %w", r.method, r.path, err)
	}
	if body != nil {
		req.ContentLength = r.size
	}
	if r.header != nil {
		req.Header = r.header
	}
	if upgrade {
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {TunnelProtocol}}
		maps.Copy(req.Header, r.header)
	}
	satisfied := c.expect(reqCtx, conn, c.pool.shared.answerTimeout/2)
	resp, err := conn.cc.RoundTrip(req)
	satisfied()
	if err != nil {
		return nil, wrote.Load(), c.explain(ctx, r, conn, err)
	}
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	if conn.single && !upgraded { // HTTP/1.1 has no pings, which tell that the agent is alive while the answer is read
		c.expect(reqCtx, conn, stoppedAnswers*c.pool.shared.answerTimeout)
	}
	succeeded := upgraded || resp.StatusCode/100 == 2
	if succeeded && upgraded != upgrade {
		resp.Body.Close()
		if upgrade {
			return nil, true, errNoUpgrade
		}
		return nil, true, fmt.Errorf("%w: %s %s: it changes the protocol", ErrBadAnswer, r.method, r.path)
	}
	a = &answer{Response: resp, conn: conn, stop: stop}
	a.unwatch = context.AfterFunc(ctx, func() { resp.Body.Close() })
	if succeeded {
		return a, true, nil
	}
	err = c.refusal(ctx, r, a)
	a.unwatch()
	resp.Body.Close()
	return nil, true, err
}

// refusal returns the error in the agent's answer.
func (c *Client) refusal(ctx context.Context, r request, a *answer) error {
	defer a.repay()
	data, err := a.json(MaxJSON)
	if err != nil {
		return c.explain(ctx, r, a.conn, err)
	}
	var e Error
	if err := json.Unmarshal(data, &e); err != nil || !e.Code.valid() {
		return fmt.Errorf("%w: %s %s: status %d without a reason", ErrBadAnswer, r.method, r.path, a.StatusCode)
	}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxMessage)], "�")
	return &e
}

// explain converts an error of the transport into one of this package.
func (c *Client) explain(ctx context.Context, r request, conn *conn, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("agent %s %s: %w", r.method, r.path, context.Cause(ctx))
	}
	if errors.Is(err, ErrBadAnswer) || errors.Is(err, errMemory) {
		return fmt.Errorf("agent %s %s: %w", r.method, r.path, err)
	}
	kind := ErrBadAnswer
	if conn.broken.Load() || conn.pool.isClosed() {
		kind = ErrUnreachable
	}
	return fmt.Errorf("%w: %s %s: %w", kind, r.method, r.path, err)
}

func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func number[T ~int | ~int64 | ~uint16 | ~uint32](n T) string {
	return strconv.FormatInt(int64(n), 10)
}
