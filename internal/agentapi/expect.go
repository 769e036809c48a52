package agentapi

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// expect watches the agent while a call waits for its answer on a connection, until the returned
// function is called. The kernel accepts calls even for an agent whose process is stuck. Therefore,
// while a call waits for long, expect repeatedly makes a health call, on the same connection if that can
// carry two calls, which a working agent answers at once.
func (c *Client) expect(ctx context.Context, conn *conn) (satisfied func()) {
	answerTimeout := c.pool.shared.answerTimeout
	if answerTimeout <= 0 {
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
	timer := time.AfterFunc(answerTimeout/2, func() { conn.checkHealth(ctx, answerTimeout/2, healthy) })
	context.AfterFunc(ctx, func() { timer.Stop() })
	return cancel
}

// checkHealth makes health calls until ctx ends. It closes the connection when the agent takes
// longer than timeout to answer.
func (c *conn) checkHealth(ctx context.Context, timeout time.Duration, healthy func(context.Context) bool) {
	for ctx.Err() == nil {
		question, cancel := context.WithTimeout(ctx, timeout)
		answered := healthy(question)
		late := question.Err() != nil && ctx.Err() == nil
		cancel()
		if !answered {
			// A call with a connection of its own notices nothing of the other connection.
			if late || c.single && ctx.Err() == nil {
				c.pool.giveUp(c)
			}
			return // or the connection has broken, which the call notices itself
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
