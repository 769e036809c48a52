package client

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// URLAccess names the credential for the management routes on a sandbox's own URL, such as /modbox/api/exec.
type URLAccess = wire.URLAccess

// The kinds of access to management routes.
const (
	URLOpen = wire.URLOpen
	URLKey  = wire.URLKey
)

// PortAccess names the credential that visitors of a published port must present.
type PortAccess = wire.PortAccess

// The kinds of access to published ports.
const (
	PortPublic  = wire.PortPublic
	PortPrivate = wire.PortPrivate
)

// Ports has the calls for the ports of a sandbox.
type Ports struct{ *transport }

// PublishedPort is a port of a sandbox with a URL of its own, which is "" for a caller who may only read.
type PublishedPort = wire.PublishedPort

// PortLink is a signed link to a private port. Both URL and token are secrets.
type PortLink = wire.PortLink

// List lists the ports that a sandbox publishes, by number. Errors: NotFound.
func (c *Ports) List(ref string) *List[PublishedPort] {
	return newList[PublishedPort](c.transport, sandboxPath(ref, "ports"), nil)
}

// Publish gives a port a URL of its own, or changes the access of a port that has one, which cuts
// off all visitors. "" is [PortPublic]. Errors: Invalid, naming port; NotFound; Ended; QuotaExceeded beyond 32 ports.
func (c *Ports) Publish(ctx context.Context, ref string, port uint16, access PortAccess) (*PublishedPort, error) {
	body := wire.PublishPort{Access: access}
	return fetch[PublishedPort](ctx, c.transport, request{method: http.MethodPut, path: portPath(ref, port), body: body, repeat: true})
}

// Visit returns a URL with which a visitor reaches a port, and the access of the port. It
// publishes a port that is not published yet with the given access, "" for [PortPublic]; asking for
// [PortPrivate] also closes a public port. The URL of a private port is a link, valid for an hour.
//
// Errors: the errors of [Ports.Publish] and of [Ports.CreateLink].
func (c *Ports) Visit(ctx context.Context, ref string, port uint16, access PortAccess) (string, PortAccess, error) {
	ports, err := c.List(ref).Collect(ctx)
	if err != nil {
		return "", "", err
	}
	var p *PublishedPort
	for i := range ports {
		if ports[i].Port == port {
			p = &ports[i]
		}
	}
	if p == nil || access == PortPrivate && p.Access != PortPrivate {
		if p, err = c.Publish(ctx, ref, port, cmp.Or(access, PortPublic)); err != nil {
			return "", "", err
		}
	}
	if p.Access != PortPrivate {
		return p.URL, p.Access, nil
	}
	link, err := c.CreateLink(ctx, ref, port, 0)
	if err != nil {
		return "", "", err
	}
	return link.URL, p.Access, nil
}

// Unpublish unpublishes a port: its URL and all links to it stop working at once,
// and open connections are cut off. Errors: NotFound, also for a port that is not published; Ended.
func (c *Ports) Unpublish(ctx context.Context, ref string, port uint16) error {
	return c.call(ctx, request{method: http.MethodDelete, path: portPath(ref, port)}, nil)
}

// Rotate gives a published port another URL; the old URL and all links to it
// stop working at once, and open connections are cut off. Errors: NotFound, also for a port that is not published; Ended.
func (c *Ports) Rotate(ctx context.Context, ref string, port uint16) (*PublishedPort, error) {
	return fetch[PublishedPort](ctx, c.transport, request{method: http.MethodPost, path: portPath(ref, port) + "/rotate"})
}

// CreateLink makes a link to a private port that is valid for a minute to a week; 0 is an hour.
// The link ends earlier if the client's own token is revoked.
//
// Errors: Invalid and Forbidden, naming expires_in_seconds, the latter when the link would outlive
// the client's own token; NotFound; Conflict for a public port; Ended.
func (c *Ports) CreateLink(ctx context.Context, ref string, port uint16, lifetime time.Duration) (*PortLink, error) {
	body := wire.CreatePortLink{ExpiresInSeconds: seconds(lifetime)}
	return fetch[PortLink](ctx, c.transport, request{method: http.MethodPost, path: portPath(ref, port) + "/links", body: body})
}

func portPath(ref string, port uint16) string {
	return sandboxPath(ref, "ports") + "/" + strconv.Itoa(int(port))
}
