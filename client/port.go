package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// URLAccess is what the management routes on a sandbox's own URL, such as
// /modbox/api/exec, ask for.
type URLAccess string

// The kinds of access to management routes.
const (
	// URLOpen asks for the sandbox's SANDBOX_API_KEY if it has one, else for nothing but the URL.
	URLOpen URLAccess = "open"
	// URLKey asks for the sandbox's SANDBOX_API_KEY or an API token that may use the sandbox.
	URLKey URLAccess = "key"
)

// PortAccess says who may use the URL of a published port.
type PortAccess string

// The kinds of access to published ports.
const (
	PortPublic  PortAccess = "public"  // everybody who knows the URL
	PortPrivate PortAccess = "private" // with an API token or a signed link, too
)

// PublishedPort is a port of a sandbox and where it is reached. The URL leads to this
// port and to nothing else of the sandbox; it is "" for who may only look.
type PublishedPort struct {
	Port      uint16     `json:"port"`
	URL       string     `json:"url"`
	Access    PortAccess `json:"access"`
	CreatedAt time.Time  `json:"created_at"` // when the URL was made
}

// PortLink is a signed link to a private port. Both URL and token are secrets.
type PortLink struct {
	URL string `json:"url"` // for a browser
	// Token is what programs send in the header X-Modbox-Token to the port's URL.
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Ports returns the ports that a sandbox publishes, in the order they were published.
// Errors: NotFound.
func (c *Client) Ports(ctx context.Context, ref string) ([]PublishedPort, error) {
	var list struct {
		Items []PublishedPort `json:"items"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(ref, "ports"), repeat: true}, &list)
	return list.Items, err
}

// PublishPort gives a port a URL of its own, or changes who may use the one it has:
// then everybody who uses it is cut off. "" is [PortPublic].
//
// Errors: Invalid, naming port; NotFound; Ended; QuotaExceeded beyond 32 ports.
func (c *Client) PublishPort(ctx context.Context, ref string, port uint16, access PortAccess) (*PublishedPort, error) {
	body := struct {
		Access PortAccess `json:"access,omitempty"`
	}{access}
	p := new(PublishedPort)
	return result(p, c.call(ctx, request{method: http.MethodPut, path: portPath(ref, port), body: body, repeat: true}, p))
}

// UnpublishPort has the URL of a port, and all links to it, stop working at once, open
// connections included. Errors: NotFound, also for a port that is not published; Ended.
func (c *Client) UnpublishPort(ctx context.Context, ref string, port uint16) error {
	return c.call(ctx, request{method: http.MethodDelete, path: portPath(ref, port)}, nil)
}

// RotatePort gives a published port another URL; the one before, and all links to it,
// stop working at once. Errors: NotFound, also for a port that is not published; Ended.
func (c *Client) RotatePort(ctx context.Context, ref string, port uint16) (*PublishedPort, error) {
	p := new(PublishedPort)
	return result(p, c.call(ctx, request{method: http.MethodPost, path: portPath(ref, port) + "/rotate"}, p))
}

// CreatePortLink makes a link to a private port that works for a lifetime, of a minute
// to a week; 0 is an hour.
//
// Errors: Invalid and Forbidden, naming expires_in_seconds, the latter when the link
// would outlive the client's own token; NotFound; Conflict for a public port; Ended.
func (c *Client) CreatePortLink(ctx context.Context, ref string, port uint16, lifetime time.Duration) (*PortLink, error) {
	body := struct {
		ExpiresInSeconds int64 `json:"expires_in_seconds,omitempty"`
	}{seconds(lifetime)}
	l := new(PortLink)
	return result(l, c.call(ctx, request{method: http.MethodPost, path: portPath(ref, port) + "/links", body: body}, l))
}

func portPath(ref string, port uint16) string {
	return sandboxPath(ref, "ports") + "/" + strconv.Itoa(int(port))
}
