// Package readiness waits until the server in a sandbox answers.
package readiness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/retry"
)

const (
	// attemptTimeout bounds one request.
	attemptTimeout = 5 * time.Second
	// headerMax bounds the headers of a response in bytes.
	headerMax = 64 << 10
)

// Server is the server that Wait calls.
type Server struct {
	Port  uint16
	HTTPS bool
	// Host is in the header of its requests, and a handshake asks for its name; localhost with the port if empty.
	Host string
}

// Wait calls GET / on a server, over connections that dial makes, until it is answered with a status
// 2xx. When ctx ends first, it returns the error of the last complete attempt. The server in the
// sandbox is hostile: Wait bounds the handshakes and the headers, follows no redirects and does not read the body.
func Wait(ctx context.Context, server Server, dial func(context.Context) (net.Conn, error)) error {
	client := &http.Client{
		Transport: &http.Transport{
			// The transport ends neither of these two with the attempt.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
				defer cancel()
				return dial(ctx)
			},
			TLSHandshakeTimeout:    attemptTimeout,
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // dial leads to the sandbox, whatever its server says
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: headerMax,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections() // ends handshakes of attempts that are over
	to := url.URL{Scheme: "http", Host: server.Host, Path: "/"}
	if server.HTTPS {
		to.Scheme = "https"
	}
	if to.Host == "" {
		to.Host = net.JoinHostPort("localhost", strconv.Itoa(int(server.Port)))
	}
	last := errors.New("it did not answer")
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := attempt(ctx, client, to.String())
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return struct{}{}, err
	}, retry.Pauses(10*time.Millisecond, 500*time.Millisecond), retry.Forever())
	if err != nil {
		return last
	}
	return nil
}

// attempt sends one request.
func attempt(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return backoff.Permanent(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // nothing was read that could be lost
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
