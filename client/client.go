package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Client calls a server with a token. Make it with [New].
type Client struct {
	base      string
	tokens    func(context.Context) (string, error)
	workspace string
	userAgent string
	http      *http.Client
	attempts  uint
}

// Option changes a client made by New.
type Option func(*Client)

// WithHTTPClient sets the client that carries the requests; the default client has no overall
// timeout, because streams last long.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithWorkspace selects a workspace of the token's user; the default is the first.
func WithWorkspace(id string) Option { return func(c *Client) { c.workspace = id } }

// WithTokens calls tokens for the token of each request, because the token of a session changes. A
// request fails with the error of tokens. Concurrent requests call tokens concurrently.
func WithTokens(tokens func(context.Context) (string, error)) Option {
	return func(c *Client) { c.tokens = tokens }
}

// WithUserAgent sets the User-Agent header.
func WithUserAgent(agent string) Option { return func(c *Client) { c.userAgent = agent } }

// WithAttempts bounds the attempts of a call that may be repeated; 1 never repeats.
func WithAttempts(n uint) Option { return func(c *Client) { c.attempts = max(n, 1) } }

// New returns a client of the server at baseURL, e.g. "http://127.0.0.1:7070".
// It does not connect. It fails when baseURL is not an http or https URL.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		hint := ""
		if baseURL != "" && !strings.Contains(baseURL, "://") {
			hint = fmt.Sprintf("; write http://%[1]s or https://%[1]s", baseURL)
		}
		return nil, fmt.Errorf("%q is not an http or https URL%s", baseURL, hint)
	}
	c := &Client{
		base:      strings.TrimRight(baseURL, "/"),
		tokens:    func(context.Context) (string, error) { return token, nil },
		userAgent: "modbox-go",
		http: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			// The token is for the named server: another server, even on the same host, must not get it.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		attempts: 4,
	}
	for _, opt := range opts {
		opt(c)
	}
	return c, nil
}

// WithToken returns a copy of the client with another token, such as the token of a [SignIn], in
// the default workspace of that token.
func (c *Client) WithToken(token string) *Client {
	other := *c
	other.workspace = ""
	other.tokens = func(context.Context) (string, error) { return token, nil }
	return &other
}

// maxError bounds the part of an error answer that is read.
const maxError = 64 << 10

// request is a call.
type request struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   any       // encoded as JSON, unless nil
	stream io.Reader // sent unchanged, unless nil
	repeat bool      // may be sent again
	status *int      // set to the HTTP status of a successful answer, unless nil
}

// sandboxPath returns the path of a sandbox's sub-resource; ref may contain any character.
func sandboxPath(ref string, parts ...string) string {
	return "/v1/sandboxes/" + url.PathEscape(ref) + strings.Join(append([]string{""}, parts...), "/")
}

// call sends r and decodes the JSON answer into out, unless out is nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if r.status != nil {
		*r.status = resp.StatusCode
	}
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: read answer: %w", r.method, r.path, err)
	}
	return nil
}

// send sends r, repeats it if necessary and permitted, and returns a successful answer, whose body
// the caller closes.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("%s %s: encode request: %w", r.method, r.path, err)
		}
	}
	attempt := func() (*http.Response, error) {
		resp, err := c.once(ctx, r, body)
		if err != nil && !repeatable(ctx, r, err) {
			return nil, backoff.Permanent(err)
		}
		return resp, err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = 100 * time.Millisecond
	resp, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses), backoff.WithMaxTries(c.attempts))
	var permanent *backoff.PermanentError
	if errors.As(err, &permanent) {
		err = permanent.Unwrap()
	}
	return resp, err
}

func repeatable(ctx context.Context, r request, err error) bool {
	if !r.repeat || ctx.Err() != nil {
		return false
	}
	var e *Error
	return !errors.As(err, &e) || e.Code == Unavailable
}

func (c *Client) once(ctx context.Context, r request, body []byte) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	reader := r.stream
	if r.body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, reader)
	if err != nil {
		return nil, err
	}
	if req.Header, err = c.header(ctx, r.header); err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if r.stream != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // a part of the message is enough
	return nil, errorFrom(resp, answer)
}

// header returns the headers of every request, and the headers in extra.
func (c *Client) header(ctx context.Context, extra http.Header) (http.Header, error) {
	token, err := c.tokens(ctx)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	for name, values := range extra {
		h[name] = values
	}
	h.Set("User-Agent", c.userAgent)
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	if c.workspace != "" {
		h.Set("X-Workspace-Id", c.workspace)
	}
	return h, nil
}
