package auth

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

type schemeKey struct{}

// Forwarded gives next the requests that come through a proxy at a trusted address as
// from the client that the proxy names: in X-Forwarded-For the right-most address that
// is not trusted itself, since what is left of it anybody may have written. Other
// requests, and those whose header makes no sense, come from where they came from.
func Forwarded(trusted []netip.Prefix, next http.Handler) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !within(trusted, peer.Addr()) {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if scheme := r.Header.Get("X-Forwarded-Proto"); scheme == "http" || scheme == "https" {
			ctx = context.WithValue(ctx, schemeKey{}, scheme)
		}
		r = r.WithContext(ctx)
		if addr := origin(trusted, peer.Addr(), r.Header.Values("X-Forwarded-For")); addr != peer.Addr() {
			r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
		}
		next.ServeHTTP(w, r)
	})
}

// ForwardedScheme returns whether the client used http or https, as a trusted proxy
// says; "" when none does.
func ForwardedScheme(ctx context.Context) string {
	scheme, _ := ctx.Value(schemeKey{}).(string)
	return scheme
}

// origin follows the hops of the header's lines back from the last as far as they are
// to be believed.
func origin(trusted []netip.Prefix, peer netip.Addr, lines []string) netip.Addr {
	at := peer
	for _, line := range slices.Backward(lines) {
		for hops, last := line, ""; hops != ""; {
			if i := strings.LastIndexByte(hops, ','); i >= 0 {
				hops, last = hops[:i], hops[i+1:]
			} else {
				hops, last = "", hops
			}
			addr, ok := hop(last)
			if !ok {
				return at
			}
			if at = addr; !within(trusted, at) {
				return at
			}
		}
	}
	return at
}

// hop reads an address, which some proxies write with a port or in brackets.
func hop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(text)
	return addr.Unmap().WithZone(""), err == nil
}

func within(ranges []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}
