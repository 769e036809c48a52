// Package upload makes the requests of the attempts to send the same content.
package upload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Content is the content of a request, which is read anew for each attempt if that is possible.
// It is not safe for concurrent use.
type Content struct {
	r      io.Reader // nil without content
	seeker io.Seeker // nil if r can be read only once
	start  int64     // where the content begins
	last   *attempt  // the attempt before, nil before the first
}

// New returns what r has from its present position on; without r there is no content.
func New(r io.Reader) *Content {
	c := &Content{r: r}
	if s, ok := r.(io.Seeker); ok {
		// Pipes and terminals have the method, which fails.
		if start, err := s.Seek(0, io.SeekCurrent); err == nil {
			c.seeker, c.start = s, start
		}
	}
	return c
}

// Repeatable reports whether another attempt can have the same content: not if r can be read only
// once, or could not be read.
func (c *Content) Repeatable() bool {
	return c.r == nil || c.seeker != nil && (c.last == nil || !c.last.unreadable())
}

// Request returns the request of the next attempt. It ends the attempt before, and does not close r
// if that is an [io.Seeker].
func (c *Content) Request(ctx context.Context, method, url string) (*http.Request, error) {
	if c.seeker == nil {
		return http.NewRequestWithContext(ctx, method, url, c.r)
	}
	switch r := c.r.(type) { // whose copies have a known size, and a transport can read them again by itself
	case *bytes.Reader:
		again := *r
		return http.NewRequestWithContext(ctx, method, url, &again)
	case *strings.Reader:
		again := *r
		return http.NewRequestWithContext(ctx, method, url, &again)
	}
	if c.last != nil {
		c.last.Close() // the transport may still read for an attempt that has ended
		if _, err := c.seeker.Seek(c.start, io.SeekStart); err != nil {
			return nil, err
		}
	}
	c.last = &attempt{r: c.r}
	return http.NewRequestWithContext(ctx, method, url, c.last)
}

// attempt is the content as the body of one request. Close does not close the content.
type attempt struct {
	mu     sync.Mutex
	r      io.Reader // guarded by mu; nil when it is closed
	failed bool      // guarded by mu; r itself failed
}

var errClosed = errors.New("the attempt has ended")

func (a *attempt) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.r == nil {
		return 0, errClosed
	}
	n, err := a.r.Read(p)
	if err != nil && err != io.EOF {
		a.failed = true
	}
	return n, err
}

// Close returns when the content is not being read, and is not read again.
func (a *attempt) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.r = nil
	return nil
}

func (a *attempt) unreadable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}
