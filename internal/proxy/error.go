package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"html/template"
	"net"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/sandbox"
)

// ErrorHeader is on every answer that comes from the proxy instead of the
// sandbox, with the error's code: both may answer 502.
const ErrorHeader = "X-Modbox-Error"

// retryAfter is how many seconds a caller should wait for a starting sandbox.
const retryAfter = "1"

// tooMany is the error of a client that guesses too often, as opposed to a sandbox
// that has too many requests under way.
type tooMany struct{ error }

func (e tooMany) Unwrap() error { return e.error }

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	if errors.As(err, new(tooMany)) {
		return http.StatusTooManyRequests
	}
	return status(sandbox.CodeOf(err))
}

// status returns the HTTP status for an error. It is not the API's: here the
// sandbox is a server behind a gateway.
func status(code sandbox.Code) int {
	switch code {
	case sandbox.Unauthenticated:
		return http.StatusUnauthorized
	case sandbox.Forbidden:
		return http.StatusForbidden
	case sandbox.NotFound:
		return http.StatusNotFound
	case sandbox.NotRunning, sandbox.Unavailable, sandbox.QuotaExceeded:
		return http.StatusServiceUnavailable
	case sandbox.Ended:
		return http.StatusGone
	case sandbox.PortClosed, sandbox.AgentUnreachable:
		return http.StatusBadGateway
	case sandbox.Timeout:
		return http.StatusGatewayTimeout
	case sandbox.Unsupported:
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}

// answerError answers with the reason why the sandbox did not answer.
func (p *Proxy) answerError(w http.ResponseWriter, r *http.Request, err error) {
	q := requestOf(r.Context())
	var coded *sandbox.Error
	var timeout net.Error
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	case errors.As(err, &coded) && coded.Code == sandbox.PortClosed:
		err = sandbox.Wrap(sandbox.PortClosed, err, "nothing listens %s", q.place())
	case errors.As(err, &coded):
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		err = sandbox.Wrap(sandbox.Timeout, err, "the server %s did not answer in time", q.place())
	case errors.As(err, new(tls.RecordHeaderError)):
		err = sandbox.Wrap(sandbox.PortClosed, err, "the server %s does not speak HTTPS, although https_ports has its port", q.place())
	case errors.Is(err, errCertificates):
		err = sandbox.Wrap(sandbox.PortClosed, err, "the server %s has certificates of more than %d KiB", q.place(), maxCertificates>>10)
	default:
		err = sandbox.Wrap(sandbox.PortClosed, err, "the server %s gave no proper HTTP answer", q.place())
	}
	if sandbox.CodeOf(err) != sandbox.Internal {
		// The end of a sandbox looks like a broken server; say what it is.
		if now, lookErr := p.find(r, q.target); lookErr == nil && now.usable() != nil {
			err = now.usable()
		}
	}
	p.writeError(w, r, err)
}

// writeError answers in HTML to clients that accept it, else in JSON; a [Direct] request by its own
// function.
func (p *Proxy) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if e := (sandbox.Elsewhere{}); errors.As(err, &e) {
		access.FromContext(r.Context()).SetElsewhere(e.Range)
	}
	if fail, ok := r.Context().Value(failKey{}).(func(http.ResponseWriter, *http.Request, error)); ok {
		fail(w, r, err)
		return
	}
	code, detail := sandbox.CodeOf(err), "something went wrong on our side; the server's log has the details"
	var e *sandbox.Error
	if code != sandbox.Internal && errors.As(err, &e) {
		detail = e.Message
	} else {
		p.logger.ErrorContext(r.Context(), "proxied request failed", "request_id", w.Header().Get(requestID), "error", err)
	}
	h := w.Header()
	h.Set(ErrorHeader, string(code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if code == sandbox.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="port"`)
	}
	if code == sandbox.NotRunning || code == sandbox.Unavailable || code == sandbox.QuotaExceeded {
		h.Set("Retry-After", retryAfter)
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(statusOf(err))
		_ = page.Execute(w, struct {
			Title, Detail string
			Refresh       bool
		}{http.StatusText(statusOf(err)), detail, code == sandbox.NotRunning})
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(statusOf(err))
	_ = json.NewEncoder(w).Encode(struct { // the client is gone when this fails
		Detail string       `json:"detail"`
		Code   sandbox.Code `json:"code"`
	}{detail, code})
}

var page = template.Must(template.New("error").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
{{if .Refresh}}<meta http-equiv="refresh" content="1">{{end}}<title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto;padding:0 1rem;color-scheme:light dark}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Detail}}</p></body></html>
`))
