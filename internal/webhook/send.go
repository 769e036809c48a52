package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/netguard"
)

const (
	// attemptTime bounds an attempt, with connecting and reading the answer.
	attemptTime = 15 * time.Second
	// responseMax is the number of bytes of an answer that the sender reads and returns.
	responseMax = 1 << 10
	headersMax  = 64 << 10
)

// message is the body of a delivery.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data"`
}

// event is the data of a message.
type event struct {
	Seq         int64             `json:"seq"`
	SandboxID   string            `json:"sandbox_id"`
	SandboxName string            `json:"sandbox_name"`
	Time        time.Time         `json:"time"`
	Type        string            `json:"type"`
	Message     string            `json:"message"`
	Data        map[string]string `json:"data,omitempty"`
}

// body returns the body of a delivery.
func body(d *Delivery) ([]byte, error) {
	ev := &d.Event
	m := message{Type: string(ev.Type), Timestamp: ev.Time, Data: struct{}{}}
	if ev.Seq > 0 {
		m.Data = event{ev.Seq, string(ev.Sandbox), ev.SandboxName, ev.Time, string(ev.Type), ev.Message, ev.Data}
	}
	return json.Marshal(m)
}

// result is the outcome of an attempt.
type result struct {
	status   int // 0 without an answer
	duration time.Duration
	err      string // "" for success
	response string
}

// sender sends deliveries.
type sender struct {
	transport *http.Transport
}

// newSender returns a sender that connects to public addresses, and to addresses in allow.
func newSender(allow []netip.Prefix) *sender {
	guard := guard(allow)
	dialer := &net.Dialer{Timeout: attemptTime, ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return guard.check(to.Addr(), ctx.Value(plainKey{}) != nil)
	}}
	return &sender{&http.Transport{ // without a proxy, which would resolve names itself
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: attemptTime, IdleConnTimeout: 30 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 2, MaxResponseHeaderBytes: headersMax, DisableCompression: true,
	}}
}

// guard has the closed ranges that the operator opened.
type guard []netip.Prefix

var errClosed = errors.New("the address is in a range that this server does not connect to; an administrator can open ranges by webhooks.allow_cidrs")

var errPlain = errors.New("http is permitted only to addresses that an administrator has opened by webhooks.allow_cidrs; use https")

// plainKey is the key of the context of requests without TLS.
type plainKey struct{}

// check returns nil for an address to which the server connects, without TLS if plain. Addresses of
// metadata services are never open.
func (g guard) check(addr netip.Addr, plain bool) error {
	addr = addr.Unmap()
	in, closed := netguard.Find(addr)
	if closed && in.Kind == netguard.Unusable {
		return errClosed
	}
	for _, p := range g {
		if p.Contains(addr) {
			return nil
		}
	}
	if closed {
		return errClosed
	}
	if plain {
		return errPlain
	}
	own, err := netguard.IsHost(addr)
	if err != nil {
		return fmt.Errorf("route to the address: %w", err)
	}
	if own {
		return errClosed
	}
	return nil
}

// close closes the connections that no attempt uses.
func (s *sender) close() { s.transport.CloseIdleConnections() }

// send makes an attempt.
func (s *sender) send(ctx context.Context, url, id string, at time.Time, signatures []string, content []byte) result {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	begun := time.Now()
	r := s.attempt(ctx, url, id, at, signatures, content)
	r.duration = time.Since(begun)
	return r
}

func (s *sender) attempt(ctx context.Context, url, id string, at time.Time, signatures []string, content []byte) result {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return result{err: "the address is not valid"}
	}
	if req.URL.Scheme == "http" {
		req = req.WithContext(context.WithValue(ctx, plainKey{}, true))
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Modbox-Webhooks/1"},
		"Webhook-Id": {id}, "Webhook-Timestamp": {fmt.Sprint(at.Unix())}, "Webhook-Signature": {strings.Join(signatures, " ")},
	}
	resp, err := s.transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		return result{err: reason(ctx, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	r := result{status: resp.StatusCode}
	text, err := io.ReadAll(io.LimitReader(resp.Body, responseMax))
	r.response = strings.ReplaceAll(strings.ToValidUTF8(string(text), "�"), "\x00", "�")
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		r.err = fmt.Sprintf("the receiver answered a redirect (%d), which is not followed", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		r.err = fmt.Sprintf("the receiver answered %d", resp.StatusCode)
	case err != nil && ctx.Err() != nil:
		r.err = "the answer did not end in time"
	}
	return r
}

// reason describes a failed connection. It has nothing that tells networks apart that the caller
// cannot reach: a refused port and a host without an answer are the same.
func reason(ctx context.Context, err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errClosed):
		return errClosed.Error()
	case errors.Is(err, errPlain):
		return errPlain.Error()
	case ctx.Err() != nil:
		return fmt.Sprintf("the receiver did not answer within %s", attemptTime)
	case errors.As(err, &dns):
		return "the name of the receiver could not be resolved"
	}
	return "the connection to the receiver failed"
}
