package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds on requests.
const (
	retryTries  = 5 // of one request
	retryFirst  = 200 * time.Millisecond
	retryPause  = 60 * time.Second // the longest pause that a registry may ask for
	dialTimeout = 10 * time.Second
)

// errStalled ends a request to a registry that sends nothing more.
var errStalled = errors.New("it sent nothing for too long")

// retrying repeats requests without a body after errors that may pass, waits as long as a registry
// asks it to, and ends answers that stall.
type retrying struct {
	next  http.RoundTripper
	stall time.Duration
}

// RoundTrip implements http.RoundTripper. After the last try it returns the answer to it.
func (p *retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		return p.once(req)
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = retryFirst
	tries := 0
	return backoff.Retry(req.Context(), func() (*http.Response, error) {
		tries++
		resp, err := p.once(req)
		if err != nil {
			if !passing(err) {
				err = backoff.Permanent(err)
			}
			return nil, err
		}
		again, wait := answerPasses(resp)
		if !again || tries == retryTries {
			return resp, nil
		}
		resp.Body.Close()
		err = fmt.Errorf("%s answers %s", req.URL.Host, resp.Status)
		if wait > 0 {
			err = errors.Join(err, backoff.RetryAfter(wait))
		}
		return nil, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(retryTries))
}

// answerPasses reports whether a later try may get a better answer, and the seconds that the
// registry asks the client to wait. A pause longer than retryPause is an error: the caller must
// learn of it.
func answerPasses(resp *http.Response) (again bool, seconds int) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, _ = strconv.Atoi(resp.Header.Get("Retry-After")) // a date or nonsense counts as no wish
		return time.Duration(seconds)*time.Second <= retryPause, seconds
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true, 0
	}
	return false, 0
}

// passing reports whether an error of the network may go away.
func passing(err error) bool {
	var network net.Error
	return errors.Is(err, errStalled) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.As(err, &network) && network.Timeout()
}

// once makes one request. Reads of the answer fail when the registry stalls.
func (p *retrying) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(p.stall, func() { cancel(errStalled) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &movingBody{ReadCloser: req.Body, timer: timer, stall: p.stall}
	}
	resp, err := p.next.RoundTrip(req)
	timer.Stop()
	if err != nil {
		if context.Cause(ctx) == errStalled {
			err = errStalled
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &stallingBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, stall: p.stall}
	return resp, nil
}

// movingBody is the body of a request. Each read of it restarts the timer for the answer.
type movingBody struct {
	io.ReadCloser
	timer *time.Timer
	stall time.Duration
}

func (b *movingBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	return b.ReadCloser.Read(p)
}

// stallingBody is the body of an answer. A read that takes longer than stall ends the request.
type stallingBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // runs while a Read does
	stall  time.Duration
}

func (b *stallingBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && context.Cause(b.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

func (b *stallingBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
