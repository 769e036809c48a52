package agentapi

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// stoppedAnswers times the answer timeout is the longest stop of an agent while its answer is read: a box stands still
// during a diff or a snapshot. With the default timeout it is as long as HTTP/2 waits for the answer to a ping.
const stoppedAnswers = 6

// expect watches the agent while a call waits for its answer, or for the rest of it, on a connection, until the returned
// function is called or ctx ends. The kernel accepts calls even for an agent whose process is stuck. Therefore,
// after the timeout, expect repeatedly makes a health call, on the same connection if that can
// carry two calls, which a working agent answers at once, and any agent within the timeout. A timeout of 0 is none.
func (c *Client) expect(ctx context.Context, conn *conn, timeout time.Duration) (satisfied func()) {
	if timeout <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	healthy := conn.healthy
	if conn.single {
		healthy = func(ctx context.Context) bool {
			_, err := c.Health(ctx)
			var refused *Error // for reasons of this process, such as its memory
			return err == nil || errors.As(err, &refused)
		}
	}
	timer := time.AfterFunc(timeout, func() { conn.checkHealth(ctx, timeout, healthy) })
	context.AfterFunc(ctx, func() { timer.Stop() })
	return cancel
}

// checkHealth makes health calls until ctx ends. It closes the connection when the agent takes
// longer than timeout to answer.
func (c *conn) checkHealth(ctx context.Context, timeout time.Duration, healthy func(context.Context) bool) {
	failed := false
	for ctx.Err() == nil {
		question, cancel := context.WithTimeout(ctx, timeout)
		answered := healthy(question)
		late := question.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case answered:
			failed = false
		case ctx.Err() != nil:
			return
		case late || failed:
			c.pool.giveUp(c)
			return
		case c.single:
			failed = true // of another connection, which may have broken alone
		default:
			return // the connection has broken, which the call notices itself
		}
		select {
		case <-time.After(timeout):
		case <-ctx.Done():
			return
		}
	}
}

// healthy reports whether the agent answers; the content of the answer does not matter.
func (c *conn) healthy(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/health", nil)
	if err != nil {
		return false
	}
	resp, err := c.cc.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // not read
	return true
}
