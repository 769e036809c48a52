package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// isolation keeps pages in path form from acting as the API's origin: without
// allow-same-origin they have an opaque one.
const isolation = "sandbox allow-scripts allow-forms allow-popups allow-downloads"

const contentSecurityPolicy = "Content-Security-Policy"

// originWide are headers of answers that act on a whole origin, which in path
// form is not the sandbox's own.
var originWide = []string{
	"Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Expect-Ct", "Alt-Svc",
	"Nel", "Report-To", "Reporting-Endpoints", "Service-Worker-Allowed", "Origin-Agent-Cluster", "Accept-Ch", "Critical-Ch",
	"Set-Login", "Use-As-Dictionary", "Shared-Storage-Write", "Sec-Session-Registration", "Secure-Session-Registration",
}

// clean takes out of the headers of an answer everything that reaches beyond its
// sandbox. prefix is the target's.
func clean(h http.Header, prefix string) {
	if prefix == "" {
		narrowCookies(h)
		if v := strings.Join(h.Values("Clear-Site-Data"), ","); strings.Contains(v, "cookies") || strings.Contains(v, "*") {
			h.Del("Clear-Site-Data") // it clears the cookies of the whole domain
		}
		return
	}
	for _, name := range originWide {
		h.Del(name)
	}
}

// answer is the response writer of every handler of a sandbox's URL. Handlers cannot
// change the platform's headers through it, and it cleans every header before it sends
// it: httputil.ReverseProxy clears the headers it finds after an informational answer,
// and adds trailers at the end.
type answer struct {
	http.ResponseWriter
	prefix string
	// header has the headers that the handler sees and sets.
	header http.Header
	begun  bool
}

// newAnswer returns an answer to a request whose URL has that prefix, "" in host form.
func newAnswer(w http.ResponseWriter, prefix string) *answer {
	return &answer{ResponseWriter: w, prefix: prefix, header: w.Header().Clone()}
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. Informational answers are dropped: the server sends
// 100 itself, and clients do not need the others.
func (a *answer) WriteHeader(status int) {
	if a.begun || status < http.StatusOK {
		return
	}
	a.begun = true
	clean(a.header, a.prefix)
	h := a.ResponseWriter.Header()
	for name, values := range a.header {
		switch {
		case strings.HasPrefix(name, http.TrailerPrefix):
		case name == "Trailer":
			h[name] = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !a.isTrailer(v) })
		default:
			h[name] = values
		}
	}
	if a.prefix != "" {
		h[contentSecurityPolicy] = append([]string{isolation}, a.header[contentSecurityPolicy]...)
	}
	a.ResponseWriter.WriteHeader(status)
}

// isTrailer reports whether a header may come behind the body.
func (a *answer) isTrailer(name string) bool {
	return httpguts.ValidTrailerHeader(name) && !strings.EqualFold(name, contentSecurityPolicy) && !slices.Contains(originWide, http.CanonicalHeaderKey(name))
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// FlushError lets http.ResponseController flush.
func (a *answer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack lets http.ResponseController hand the connection over. The head of such an
// answer is written past this writer; modifyResponse has cleaned it.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap lets http.ResponseController reach deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// ours are the headers that no sandbox's answer can change, and nothing cleans.
func (a *answer) ours() http.Header { return a.ResponseWriter.Header() }

// end passes the trailers on. It must be called when the handler has returned.
func (a *answer) end() {
	if !a.begun {
		return
	}
	announced := map[string]bool{}
	for _, name := range a.ResponseWriter.Header()["Trailer"] {
		announced[name] = true
	}
	clean(a.header, a.prefix)
	for name, values := range a.header {
		trailer, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if (prefixed || announced[name]) && a.isTrailer(trailer) {
			a.ResponseWriter.Header()[name] = values
		}
	}
}

// withoutTrace hides the trace by which httputil.ReverseProxy passes informational
// answers on, so that http.Transport skips them and bounds their size.
type withoutTrace struct{ context.Context }

// Value implements context.Context.
func (c withoutTrace) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
