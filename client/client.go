package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls a server with a token: a service for each noun of the API. Make it with [New].
type Client struct {
	Sandboxes     *Sandboxes
	Executions    *Executions
	Streams       *Streams
	Snapshots     *Snapshots
	Images        *Images
	SandboxImages *SandboxImages
	Registries    *Registries
	Events        *Events
	Webhooks      *Webhooks
	Account       *Account
	Tokens        *Tokens
	SSHKeys       *SSHKeys
	Workspaces    *Workspaces
	Users         *Users
	Workers       *Workers
	Audit         *Audit

	*transport
}

// newClient returns the client that sends its requests with t.
func newClient(t *transport) *Client {
	return &Client{
		Sandboxes: &Sandboxes{
			Files: &Files{t}, Checkpoints: &Checkpoints{t}, Ports: &Ports{t}, Contexts: &Contexts{t}, transport: t,
		},
		Executions: &Executions{t}, Streams: &Streams{t}, Snapshots: &Snapshots{t}, Images: &Images{t},
		SandboxImages: &SandboxImages{t}, Registries: &Registries{t}, Events: &Events{t}, Webhooks: &Webhooks{t}, Account: &Account{t},
		Tokens: &Tokens{t}, SSHKeys: &SSHKeys{t}, Workspaces: &Workspaces{t}, Users: &Users{t}, Workers: &Workers{t}, Audit: &Audit{t},
		transport: t,
	}
}

// Option changes a client made by New.
type Option func(*transport)

// WithHTTPClient sets the client that carries the requests; the default client has no overall
// timeout, because streams last long.
func WithHTTPClient(h *http.Client) Option { return func(t *transport) { t.http = h } }

// WithWorkspace selects a workspace of the token's user; the default is the first.
func WithWorkspace(id string) Option { return func(t *transport) { t.workspace = id } }

// WithTokens calls tokens for the token of each request, because the token of a session changes. A
// request fails with the error of tokens. Concurrent requests call tokens concurrently.
func WithTokens(tokens func(context.Context) (string, error)) Option {
	return func(t *transport) { t.tokens = tokens }
}

// WithUserAgent sets the User-Agent header.
func WithUserAgent(agent string) Option { return func(t *transport) { t.userAgent = agent } }

// WithAttempts bounds the attempts of a call that may be repeated; 1 never repeats.
func WithAttempts(n uint) Option { return func(t *transport) { t.attempts = max(n, 1) } }

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
	t := &transport{
		base:      strings.TrimRight(baseURL, "/"),
		tokens:    func(context.Context) (string, error) { return token, nil },
		userAgent: "modbox-go",
		http: &http.Client{
			Transport: defaultTransport(),
			// The token is for the named server: another server, even on the same host, must not get it.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		attempts: 4,
	}
	for _, opt := range opts {
		opt(t)
	}
	return newClient(t), nil
}

// connectTimeout bounds an attempt to connect. A machine that is gone does not refuse it, and another attempt can reach another server
// behind the same address.
var connectTimeout = 5 * time.Second // tests change it

// silence finds out within half a minute that a server is gone while an answer is awaited. A request that never arrived is sent again by the kernel for
// minutes: only the limit of the call ends it.
var silence = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

func defaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: connectTimeout, KeepAliveConfig: silence}).DialContext
	return t
}

// WithToken returns a copy of the client with another token, such as the token of a [SignIn], in
// the default workspace of that token.
func (c *Client) WithToken(token string) *Client {
	other := *c.transport
	other.workspace = ""
	other.tokens = func(context.Context) (string, error) { return token, nil }
	return newClient(&other)
}

// WhoAmI returns the identity of the token.
func (c *Client) WhoAmI(ctx context.Context) (*Identity, error) {
	return fetch[Identity](ctx, c.transport, request{method: http.MethodGet, path: "/v1/whoami", repeat: true})
}

// Host describes the machine of the server, for its administrators.
func (c *Client) Host(ctx context.Context) (*Host, error) {
	return fetch[Host](ctx, c.transport, request{method: http.MethodGet, path: "/v1/host", repeat: true})
}

// Version returns the server's version.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	return fetch[Version](ctx, c.transport, request{method: http.MethodGet, path: "/v1/version", repeat: true})
}
