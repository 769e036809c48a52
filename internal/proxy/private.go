package proxy

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
)

// TokenHeader is the header by which programs present an API token, or the token of
// a signed link, to a private port; they may use Authorization: Bearer as well,
// unless the server in the sandbox wants that for itself.
const TokenHeader = "X-Modbox-Token"

// The names of the cookie that a browser gets for a signed link. The prefixes make
// browsers refuse a cookie set by another host of the same domain. Without TLS there
// is no such protection; the proxy refuses such a cookie because its token is wrong.
const (
	cookieHost   = "__Host-modbox_port"
	cookieSecure = "__Secure-modbox_port" // of a path
	cookiePlain  = "modbox_port"
)

var cookieNames = []string{cookieHost, cookieSecure, cookiePlain}

// authorize returns an error when the visitor may not use the port: a private one asks
// for an API token, a signed link, or the cookie that browsers get for a link. It
// reports whether it has answered the request.
func (p *Proxy) authorize(w *answer, r *http.Request, q *request) (done bool, err error) {
	if q.port.Access != sandbox.PortPrivate {
		return false, nil
	}
	q.changed = p.tokens.Changed() // before anything is looked up
	rest, linked := cutToken(r.URL.RawQuery)
	token := cmp.Or(linked, presented(r.Header))
	switch {
	case linked != "" || strings.HasPrefix(token, preview.LinkPrefix): // no API token in a URL
		if err := p.checkLink(r, q, preview.Link, token); err != nil {
			return false, err
		}
		if linked == "" || (r.Method != http.MethodGet && r.Method != http.MethodHead) || upgrading(r) {
			return false, nil
		}
		return true, p.welcome(w, r, q, rest)
	case token != "":
		id, err := p.tokens.Permits(r, token, q.sb.Workspace, account.SandboxesWrite)
		if sandbox.CodeOf(err) == sandbox.QuotaExceeded {
			err = tooMany{err}
		}
		q.maker, q.until = &preview.Maker{User: id.User, Token: id.TokenID}, id.Expires
		return false, err
	}
	for _, c := range r.Cookies() {
		if !slices.Contains(cookieNames, c.Name) {
			continue
		}
		if err = p.checkLink(r, q, preview.Cookie, c.Value); err == nil {
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	return false, sandbox.Errorf(sandbox.Unauthenticated, "this URL is private: open it with a link that somebody with access made, or send an API token in %s", TokenHeader)
}

// checkLink returns an error unless a link, or the cookie of one, is good and its maker
// may still use the sandbox.
func (p *Proxy) checkLink(r *http.Request, q *request, kind preview.Kind, token string) error {
	g, err := p.links.Check(kind, token, q.sb.ID, q.port)
	if err != nil {
		return p.wrong(r, err)
	}
	q.maker, q.until = &g.Maker, g.Expires
	err = p.still(r.Context(), q)
	switch sandbox.CodeOf(err) {
	case sandbox.Unauthenticated, sandbox.Forbidden:
		return sandbox.Errorf(sandbox.Unauthenticated, "the link was revoked with the token or the rights of its maker; ask for a new one")
	}
	return err
}

// still returns an error when the maker of the visitor's link, or the owner of its
// token, may not use the sandbox any more.
func (p *Proxy) still(ctx context.Context, q *request) error {
	return p.tokens.StillPermits(ctx, q.maker.User, q.maker.Token, q.sb.Workspace, account.SandboxesWrite)
}

// watch ends a request to a private port as soon as its visitor's link or token is
// revoked. It returns when ctx ends.
func (p *Proxy) watch(ctx context.Context, cancel context.CancelFunc, q *request) {
	for changed := q.changed; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = p.tokens.Changed()
		if p.still(ctx, q) != nil {
			cancel()
			return
		}
	}
}

// wrong counts an invalid token, and returns an error when there were too many.
func (p *Proxy) wrong(r *http.Request, err error) error {
	if sandbox.CodeOf(err) != sandbox.Unauthenticated {
		return err
	}
	p.guesses.Wrong(r.RemoteAddr)
	if p.guesses.TooMany(r.RemoteAddr) {
		return tooMany{sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong links from this address; wait a minute")}
	}
	return err
}

// welcome gives a browser that has opened a signed link a cookie for the rest of the
// link's time, and sends it to the same place without the token: the address bar is
// for everybody to see, and is copied.
func (p *Proxy) welcome(w *answer, r *http.Request, q *request, query string) error {
	value, err := p.links.Sign(preview.Cookie, q.sb.ID, q.port, preview.Grant{Maker: *q.maker, Expires: q.until})
	if err != nil {
		return err
	}
	secure := cmp.Or(auth.ForwardedScheme(r.Context()), p.cfg.URLs.Scheme()) == "https"
	c := &http.Cookie{
		Name: cookiePlain, Value: value, Path: q.target.Prefix + "/", Expires: q.until, MaxAge: int(time.Until(q.until).Seconds()) + 1,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	}
	switch {
	case secure && q.target.Prefix == "":
		c.Name = cookieHost
	case secure:
		// To a page in path form, whose origin is opaque, everything is another site.
		c.Name, c.SameSite = cookieSecure, http.SameSiteNoneMode
	}
	w.ours().Add("Set-Cookie", c.String())
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	// A path that begins with two slashes would name another host.
	u := url.URL{RawQuery: query}
	location := q.target.Prefix + "/" + strings.TrimLeft(r.URL.EscapedPath(), "/") + u.String()
	h.Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// presented returns the token of ours in the headers of a request; "" for none.
func presented(h http.Header) string {
	if token := h.Get(TokenHeader); token != "" {
		return token
	}
	for _, v := range h.Values("Authorization") {
		if scheme, token, _ := strings.Cut(v, " "); ownToken(v) && strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token)
		}
	}
	return ""
}

// cutToken returns a query without the tokens of signed links in it, and the first of these.
func cutToken(query string) (rest, token string) {
	if !mayHoldToken(query) {
		return query, ""
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err != nil || name != preview.Parameter {
			kept = append(kept, part)
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil && token == "" {
			token = value
		}
	}
	return strings.Join(kept, "&"), token
}

// mayHoldToken reports whether a query may have the parameter, perhaps escaped.
func mayHoldToken(query string) bool {
	return strings.Contains(query, preview.Parameter) || strings.Contains(query, "%")
}

// withoutOurs takes out of a request's headers what lets visitors in: it is no
// business of the sandbox.
func withoutOurs(h http.Header) {
	if values := h.Values("Authorization"); slices.ContainsFunc(values, ownToken) {
		h["Authorization"] = slices.DeleteFunc(slices.Clone(values), ownToken)
		if len(h["Authorization"]) == 0 {
			h.Del("Authorization")
		}
	}
	if strings.Contains(h.Get("Referer"), preview.Parameter) {
		h.Del("Referer")
	}
	values := h.Values("Cookie")
	if !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, cookiePlain) }) {
		return
	}
	var kept []string
	for _, value := range values {
		for pair := range strings.SplitSeq(value, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if !slices.Contains(cookieNames, strings.TrimSpace(name)) {
				kept = append(kept, strings.TrimSpace(pair))
			}
		}
	}
	if h.Del("Cookie"); len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}
