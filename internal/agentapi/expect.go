package agentapi

import (
	"context"
	"net/http"
	"time"
)

// expect watches the agent while a call waits for its answer on a connection, until
// the function that it returns is called. An agent whose process stands still takes a
// call like any other, because the kernel does; so a call that waits for long has
// the agent asked on the same connection whether it is there, which it answers at once.
func (c *Client) expect(ctx context.Context, conn *conn) (satisfied func()) {
	patience := c.pool.shared.patience
	if patience <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(patience/2, func() { conn.askWhether(ctx, patience/2) })
	return func() {
		timer.Stop()
		cancel()
	}
}

// askWhether asks the agent whether it is there, again and again, until ctx ends. It
// ends the connection when the agent takes longer than patience to answer.
func (c *conn) askWhether(ctx context.Context, patience time.Duration) {
	for {
		question, cancel := context.WithTimeout(ctx, patience)
		answered := c.ask(question)
		late := question.Err() != nil && ctx.Err() == nil
		cancel()
		if !answered {
			if late {
				c.pool.giveUp(c)
			}
			return // or the connection has broken, as the call will find
		}
		select {
		case <-time.After(patience):
		case <-ctx.Done():
			return
		}
	}
}

// ask reports whether the agent answers; what it says does not matter.
func (c *conn) ask(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/health", nil)
	if err != nil {
		return false
	}
	resp, err := c.cc.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // unread
	return true
}
