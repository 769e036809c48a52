package auth

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

type schemeKey struct{}

// Forwarded replaces the remote address of requests that come through a trusted proxy by the
// address of the client: the right-most address in X-Forwarded-For that is not itself a trusted
// proxy, because a client can forge everything left of it. Other requests, and requests with a
// malformed header, keep the peer's address.
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

// ForwardedScheme returns whether the client used http or https according to a trusted proxy; ""
// when there is none.
func ForwardedScheme(ctx context.Context) string {
	scheme, _ := ctx.Value(schemeKey{}).(string)
	return scheme
}

// origin follows the hops in the header lines from the last one back, as long as they are trusted
// proxies.
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

// hop parses an address, which some proxies write with a port or in brackets.
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
