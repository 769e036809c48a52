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
	"github.com/coder/websocket"

	"github.com/modbox/modbox/client/upload"
)

// transport sends the requests of a client; its services share it.
type transport struct {
	base      string
	tokens    func(context.Context) (string, error)
	workspace string
	userAgent string
	http      *http.Client
	attempts  uint
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
	repeat bool      // may be sent again, with a stream only if that can be read again
	status *int      // set to the HTTP status of a successful answer, unless nil
}

// sandboxPath returns the path of a sandbox's sub-resource; ref may contain any character.
func sandboxPath(ref string, parts ...string) string {
	return "/v1/sandboxes/" + url.PathEscape(ref) + strings.Join(append([]string{""}, parts...), "/")
}

// call sends r and decodes the JSON answer into out, unless out is nil.
func (t *transport) call(ctx context.Context, r request, out any) error {
	resp, err := t.send(ctx, r)
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

// fetch sends r and returns the JSON answer; nil with an error.
func fetch[T any](ctx context.Context, t *transport, r request) (*T, error) {
	answer := new(T)
	if err := t.call(ctx, r, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// send sends r, repeats it if necessary and permitted, and returns a successful answer, whose body
// the caller closes.
func (t *transport) send(ctx context.Context, r request) (*http.Response, error) {
	content := upload.New(r.stream)
	if r.body != nil {
		body, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: encode request: %w", r.method, r.path, err)
		}
		content = upload.New(bytes.NewReader(body))
	}
	attempt := func() (*http.Response, error) {
		resp, err := t.once(ctx, r, content)
		if err != nil && !(repeatable(ctx, r, err) && content.Repeatable()) {
			return nil, backoff.Permanent(err)
		}
		return resp, err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = 100 * time.Millisecond
	resp, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses), backoff.WithMaxTries(t.attempts))
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

func (t *transport) once(ctx context.Context, r request, content *upload.Content) (*http.Response, error) {
	target := t.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := content.Request(ctx, r.method, target)
	if err != nil {
		return nil, err
	}
	if req.Header, err = t.header(ctx, r.header); err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if r.stream != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := t.http.Do(req)
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
func (t *transport) header(ctx context.Context, extra http.Header) (http.Header, error) {
	token, err := t.tokens(ctx)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	for name, values := range extra {
		h[name] = values
	}
	h.Set("User-Agent", t.userAgent)
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	if t.workspace != "" {
		h.Set("X-Workspace-Id", t.workspace)
	}
	return h, nil
}

// dial begins a WebSocket.
func (t *transport) dial(ctx context.Context, path string) (*websocket.Conn, error) {
	header, err := t.header(ctx, nil)
	if err != nil {
		return nil, err
	}
	conn, resp, err := websocket.Dial(ctx, t.base+path, &websocket.DialOptions{HTTPClient: t.http, HTTPHeader: header})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // the dialler has read its beginning
			return nil, errorFrom(resp, body)
		}
		return nil, fmt.Errorf("attach: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

// open sends a GET request for content, which the caller closes.
func (t *transport) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := t.send(ctx, request{method: http.MethodGet, path: path, query: query, repeat: true})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
