// Package interpreter serves the calls of E2B's published code interpreter client: code in contexts
// that keep their state.
package interpreter

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/code"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// Port is the port at which the clients expect this service.
const Port = 49999

const (
	// bodyMax bounds a body, which has code in JSON.
	bodyMax = 8 << 20
	// viaURL is the value of Via in the audit log.
	viaURL = "sandbox-url"
	// tokenHeader has the access token of the sandbox.
	tokenHeader = "X-Access-Token"
	// The fields of a context that the supervisor of interpreters may call wrong.
	fieldLanguage = "language"
	fieldCwd      = "cwd"
)

// Server serves all sandboxes. Safe for concurrent use.
type Server struct {
	code        *code.Service
	files       guest.Files
	credentials e2b.Credentials
	mux         *http.ServeMux
}

// New returns a server, which records what it does in log.
func New(calls *guest.Calls, credentials e2b.Credentials, log *audit.Log) *Server {
	s := &Server{code: code.New(calls), files: calls.Files, credentials: credentials, mux: http.NewServeMux()}
	for pattern, rt := range map[string]struct {
		action string
		handle handler
	}{
		"GET /health":                 {"", s.health},
		"POST /execute":               {"run-code-stream", s.execute},
		"GET /contexts":               {"", s.list},
		"POST /contexts":              {"create-context", s.create},
		"DELETE /contexts/{id}":       {"delete-context", s.remove},
		"POST /contexts/{id}/restart": {"restart-context", s.restart},
	} {
		var h http.Handler = rt.handle
		var op *audit.Operation
		if rt.action != "" {
			op = &audit.Operation{Action: rt.action, Route: pattern, Fail: fail}
			h = log.IntentHandler(op, h)
		}
		h = recorded(h)
		if op != nil {
			h = log.Handler(op, h)
		}
		s.mux.Handle(pattern, access.Routed(pattern, h))
	}
	return s
}

// recorded says in the audit log which sandbox a request is for.
func recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := visitOf(r.Context())
		e := audit.FromContext(r.Context())
		e.Via(viaURL, v.sb.Workspace)
		e.Object("sandbox", v.ref, v.sb.Name)
		next.ServeHTTP(w, r)
	})
}

// handler is an HTTP handler that returns its error.
type handler func(w http.ResponseWriter, r *http.Request, v *visit) error

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r, visitOf(r.Context())); err != nil {
		fail(w, r, err)
	}
}

// fail answers with an error as text: the clients show the status, and for 404 the text.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	p := edge.Problem(r.Context(), err)
	status := p.Status
	switch {
	case p.Code == sandbox.Unsupported, isAbout(err, fieldLanguage):
		status = http.StatusNotFound // the user reads which languages there are, and what to install
	case p.Code == sandbox.Invalid:
		status = http.StatusBadRequest
	}
	if p.Code == sandbox.NotRunning || p.Code == sandbox.Ended {
		status = http.StatusBadGateway // the clients take it for the end of the sandbox
	}
	p.SetRetryAfter(w.Header())
	http.Error(w, p.Detail, status)
}

// isAbout reports whether an error names a field.
func isAbout(err error, field string) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Field == field
}

// visit is a request to a sandbox.
type visit struct {
	sb     sandbox.Sandbox
	caller sandbox.Caller
	ref    string
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// ServeSandbox answers a request to a running sandbox. The caller has checked the traffic token.
func (s *Server) ServeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) {
	v := &visit{sb: sb, ref: string(sb.ID), caller: sandbox.Caller{User: sb.CreatedBy, Workspace: sb.Workspace}}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request, _ *visit) error {
	return answer(w, "OK")
}

// decode reads a JSON body, which may be missing.
func decode[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	return e2b.DecodeMax[T](w, r, bodyMax)
}

func answer(w http.ResponseWriter, v any) error {
	e2b.WriteJSON(w, http.StatusOK, v)
	return nil
}

// languageOf returns our name of a language.
func languageOf(name string) string {
	switch name = strings.ToLower(name); name {
	case "":
		return python
	case "js":
		return javascript
	case "ts":
		return "typescript"
	}
	return name
}
