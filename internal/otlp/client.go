// Package otlp sends traces, metrics and logs to receivers of OpenTelemetry's protocol (OTLP) over HTTP.
//
// It has an HTTP client of its own: the official clients bring gRPC with them, which would add megabytes to
// the program and time to the start of each command.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/internal/retry"
)

const (
	// requestTimeout bounds one attempt, exportTimeout all attempts for a batch.
	requestTimeout, exportTimeout = 10 * time.Second, 30 * time.Second
	// answerMax bounds what is read of an answer.
	answerMax = 64 << 10
	// logInterval is the least time between two messages about the same trouble.
	logInterval = time.Minute
)

// Receiver is a receiver of one kind of data.
type Receiver struct {
	// Endpoint is its address, such as http://127.0.0.1:4318; data goes to /v1/traces, /v1/metrics or /v1/logs
	// below it.
	Endpoint string
	// Header has further headers of each request, such as an authorization.
	Header http.Header
	// Version is the version of this program, Instance a name of this installation that no other one has, "" if there is
	// none yet.
	Version, Instance string
	// Log receives what goes wrong.
	Log *slog.Logger
}

// client sends batches of one kind of data over HTTP.
type client struct {
	kind    string // for messages, such as traces
	url     string
	header  http.Header
	http    *http.Client
	log     *slog.Logger
	logged  atomic.Int64 // when the last message was logged, in nanoseconds
	batches *prometheus.CounterVec
}

// newClient returns a client for data of a kind, such as traces, which counts its batches under the name of one piece.
func newClient(to Receiver, kind, piece string) (*client, error) {
	u, err := url.Parse(to.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("endpoint of %s: it is not an http or https URL", kind)
	}
	c := &client{
		kind: kind, url: strings.TrimSuffix(u.String(), "/") + "/v1/" + kind, header: to.Header.Clone(), log: to.Log,
		http: &http.Client{Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modbox_" + piece + "_batches_total", Help: "Batches that were sent to the receiver of " + kind + ", by outcome: ok, or error for batches that were given up.",
		}, []string{"outcome"}),
	}
	c.batches.WithLabelValues("ok")
	c.batches.WithLabelValues("error")
	return c, nil
}

// Collectors returns the metrics of the export.
func (c *client) Collectors() []prometheus.Collector { return []prometheus.Collector{c.batches} }

// send sends a batch, with repetitions. A batch that cannot be sent is given up. It returns how many parts of a batch that
// was sent the receiver rejected.
func (c *client) send(ctx context.Context, batch proto.Message) (rejected int, ok bool) {
	body, err := encode(batch)
	var a answer
	if err == nil {
		a, err = backoff.Retry(ctx, func() (answer, error) { return c.post(ctx, body) },
			retry.Pauses(500*time.Millisecond, 5*time.Second), backoff.WithMaxElapsedTime(exportTimeout))
	}
	if err != nil {
		c.batches.WithLabelValues("error").Inc()
		c.warn(c.kind+" cannot be sent and are lost", "error", err)
		return 0, false
	}
	c.batches.WithLabelValues("ok").Inc()
	if a.rejected > 0 {
		c.warn("the receiver does not take all "+c.kind, "rejected", a.rejected, "message", a.message)
	} else if a.message != "" {
		c.warn("the receiver of "+c.kind+" has a warning", "message", a.message)
	}
	return a.rejected, true
}

// warn logs what is wrong with the receiver, at most once in a minute.
func (c *client) warn(message string, attrs ...any) {
	if now, last := time.Now().UnixNano(), c.logged.Load(); now-last >= int64(logInterval) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn(message, attrs...)
	}
}

// encode returns the body of a request.
func encode(batch proto.Message) ([]byte, error) {
	message, err := proto.Marshal(batch)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err = w.Write(message)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// post makes one attempt. Errors that no further attempt can change are permanent.
func (c *client) post(ctx context.Context, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, backoff.Permanent(err)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, answerMax)) // also so that the connection is used again
	if resp.StatusCode/100 == 2 {
		return readAnswer(text), nil
	}
	err = fmt.Errorf("the receiver of %s answered with status %d", c.kind, resp.StatusCode)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return answer{}, err
	}
	return answer{}, backoff.Permanent(err)
}

// close ends the client's idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }
