package proxy

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/sandbox"
)

// Direct is a request for a port of a sandbox that was named in another way than by [URLs].
type Direct struct {
	Sandbox sandbox.Sandbox
	Port    uint16
	// SharedHost is whether the host of the request is not the sandbox's alone: then the answer
	// must not act on the whole origin.
	SharedHost bool
	// Fail answers instead of the sandbox.
	Fail func(http.ResponseWriter, *http.Request, error)
}

// failKey is the key of a context's [Direct.Fail].
type failKey struct{}

// ServeDirect has a sandbox answer a request. Its ports are open as at the sandbox's own URL: a
// private port asks for a token or a link.
func (p *Proxy) ServeDirect(w http.ResponseWriter, r *http.Request, d Direct) {
	access.FromContext(r.Context()).At(route)
	prefix := ""
	if d.SharedHost {
		prefix = "/"
	}
	a := newAnswer(w, prefix)
	ctx := context.WithValue(r.Context(), failKey{}, d.Fail)
	p.serve(a, r.WithContext(ctx), Target{Label: d.Sandbox.HostLabel, Port: d.Port})
	a.end()
}

// Enter counts a request to a sandbox of a workspace that the server answers itself against the
// requests that may be under way at once, until leave is called. Errors: Unavailable.
func (p *Proxy) Enter(ws sandbox.WorkspaceID) (leave func(), err error) { return p.share.enter(ws) }

// Domain returns the base domain of sandbox hosts, with the port unless it is the scheme's; "" for
// none.
func (u URLs) Domain() string {
	if u.domain == "" {
		return ""
	}
	if port := u.public.Port(); port != "" {
		return u.domain + ":" + port
	}
	return u.domain
}

// Label returns the first label of a host beneath the base domain; ok is false for other hosts.
func (u URLs) Label(host string) (label string, ok bool) { return u.hostName(host) }
