// Package gateway finds out which requests of E2B's clients are for a sandbox, by their headers or
// their host, and passes them on: to packages envd and interpreter, or to the port of the sandbox.
package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/dialect/e2b/envd"
	"github.com/modbox/modbox/internal/dialect/e2b/interpreter"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
)

// The headers of requests.
const (
	idHeader      = "E2b-Sandbox-Id"
	portHeader    = "E2b-Sandbox-Port"
	trafficHeader = "E2b-Traffic-Access-Token"
	keyHeader     = "X-Api-Key"
)

// Ports carries requests to the ports of sandboxes: proxy.Proxy.
type Ports interface {
	// ServeDirect has a sandbox answer a request.
	ServeDirect(w http.ResponseWriter, r *http.Request, d proxy.Direct)
	// Enter counts a request to a sandbox that the server answers itself. Errors: Unavailable.
	Enter(ws sandbox.WorkspaceID) (leave func(), err error)
}

// Deps are the dependencies of a gateway. All but Owner must be set.
type Deps struct {
	Service     *lifecycle.Service
	Credentials e2b.Credentials
	Envd        *envd.Server
	Interpreter *interpreter.Server
	Ports       Ports
	URLs        proxy.URLs
	Owner       *sandbox.Ownership // of the shards of the sandboxes in memory; nil for all
}

// Gateway passes requests on. Safe for concurrent use.
type Gateway struct {
	Deps
	guesses *auth.Guesses
}

// New returns a gateway. The caller closes it.
func New(deps Deps) (*Gateway, error) {
	guesses, err := auth.NewGuesses()
	return &Gateway{deps, guesses}, err
}

// Close ends the work in the background.
func (g *Gateway) Close() { g.guesses.Close() }

// controlLabel is the first label of the host of the control plane beneath the base domain, which
// clients call that know the domain alone.
const controlLabel = "api"

// target is the port of a sandbox that a request names.
type target struct {
	id   sandbox.ID
	name string // as the request has it
	port uint16
	host bool // it is named by the host
}

// Wrap passes on the requests for sandboxes, and leaves all others to next: requests to the host of the
// control plane go to the routes of the dialect, as do requests with an API key in the form of E2B's clients,
// which becomes a bearer token. A request to another URL of a sandbox keeps its API key, which is for a program in the
// sandbox.
func (g *Gateway) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, ours, err := g.target(r)
		switch {
		case err != nil:
			e2b.WriteError(w, r, err)
		case ours:
			g.serve(w, r, t)
		case g.isControl(r):
			next.ServeHTTP(w, withToken(g.control(r)))
		case g.isSandbox(r):
			next.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, withToken(r))
		}
	})
}

// target returns the port that a request names; ours is false for a request to the server itself.
func (g *Gateway) target(r *http.Request) (t target, ours bool, err error) {
	if label, ok := g.URLs.Label(r.Host); ok {
		digits, name, found := strings.Cut(label, "-")
		if id, ok := e2b.ParseSandboxID(name); found && ok && strings.HasPrefix(name, "i") {
			if port, ok := portOf(digits); ok {
				return target{id, name, port, true}, true, nil
			}
		}
		return target{}, false, nil // a host of ours
	}
	name, digits := r.Header.Get(idHeader), r.Header.Get(portHeader)
	if name == "" && digits == "" {
		return g.signed(r)
	}
	port, ok := portOf(digits)
	if name == "" || !ok {
		return target{}, false, sandbox.InvalidField(idHeader+" and "+portHeader, "must be given together, with the id of a sandbox and a port")
	}
	id, _ := e2b.ParseSandboxID(name)
	return target{id, name, port, false}, true, nil
}

// signed finds the sandbox of a signed URL of a file without a name of a sandbox, as clients make it
// when all sandboxes have the same URL.
func (g *Gateway) signed(r *http.Request) (target, bool, error) {
	q := r.URL.Query()
	if r.URL.Path != "/files" || !q.Has("signature") {
		return target{}, false, nil
	}
	if g.guesses.TooMany(r.RemoteAddr) {
		return target{}, false, tooMany()
	}
	s := e2b.Signed{Path: q.Get("path"), Operation: "read", User: q.Get("username")}
	if r.Method == http.MethodPost {
		s.Operation = "write"
	}
	s.Expires, _ = strconv.ParseInt(q.Get("signature_expiration"), 10, 64)
	for id := range g.Service.Live() {
		if ok, err := g.Credentials.CheckSignature(id, s, q.Get("signature")); err != nil || ok {
			return target{id, e2b.SandboxID(id), envd.Port, false}, ok, err
		}
	}
	err := sandbox.Errorf(sandbox.Unauthenticated, "invalid signature")
	if g.Owner.Ranges() != sandbox.AllRanges {
		err.Err = sandbox.Elsewhere{Range: sandbox.SomeRange} // the server counts how often the others do not know it
	} else {
		g.guesses.Wrong(r.RemoteAddr)
	}
	return target{}, false, err
}

func tooMany() error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "too many names of no sandbox from this address; wait a minute")
}

// portOf reads a port, of which there is one way to write each.
func portOf(digits string) (uint16, bool) {
	n, err := strconv.ParseUint(digits, 10, 16)
	return uint16(n), err == nil && n != 0 && strconv.FormatUint(n, 10) == digits
}

// isControl reports whether a request is to the host of the control plane.
func (g *Gateway) isControl(r *http.Request) bool {
	label, ok := g.URLs.Label(r.Host)
	return ok && label == controlLabel
}

// isSandbox reports whether a request is to a URL of a sandbox in the form of /v1.
func (g *Gateway) isSandbox(r *http.Request) bool {
	_, ours, _ := g.URLs.Parse(r.Host, r.URL.EscapedPath())
	return ours
}

// control returns a request to the host of the control plane as a request to the routes of the dialect, which
// are all that this host has.
func (g *Gateway) control(r *http.Request) *http.Request {
	r = prefixed(r)
	r.Host = strings.TrimPrefix(g.URLs.Server(), g.URLs.Scheme()+"://") // the proxy knows no sandbox by the other
	return r
}

// withToken returns a request to the server itself with its API key as bearer token, for the routes of
// the dialect. Clients also send an access token of E2B's, as bearer token, when they have one: it means nothing here.
// A key that only E2B's clients can have sent is used instead, as any key is on the routes of the dialect.
func withToken(r *http.Request) *http.Request {
	key := r.Header.Get(keyHeader)
	other := e2b.Token(key) == key && !strings.HasPrefix(r.URL.Path, e2b.Prefix+"/")
	if key == "" || other && r.Header.Get("Authorization") != "" {
		return r
	}
	r = prefixed(r)
	r.Header = r.Header.Clone()
	r.Header.Set("Authorization", "Bearer "+e2b.Token(key))
	return r
}

// prefixed returns a copy of a request whose path begins with the prefix of the dialect.
func prefixed(r *http.Request) *http.Request {
	r2 := *r
	if strings.HasPrefix(r.URL.Path, e2b.Prefix+"/") {
		return &r2
	}
	u := *r.URL
	u.Path = e2b.Prefix + u.Path
	if u.RawPath != "" {
		u.RawPath = e2b.Prefix + u.RawPath
	}
	r2.URL = &u
	return &r2
}

// failure is the body of an error at a sandbox's port.
type failure struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      uint16 `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// fail answers instead of a sandbox. The clients compare the message for a sandbox that is not there.
func (t *target) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := failure{SandboxID: t.name, Message: "The sandbox was not found", Code: http.StatusBadGateway}
	switch sandbox.CodeOf(err) {
	case sandbox.NotFound, sandbox.NotRunning, sandbox.Ended:
	case sandbox.PortClosed:
		f.Message, f.Port = "The sandbox is running but port is not open", t.port
	case sandbox.Forbidden, sandbox.Unauthenticated:
		f.Code = http.StatusForbidden
		f.Message = message(err)
	default:
		e2b.WriteError(w, r, err)
		return
	}
	e2b.WriteJSON(w, f.Code, f)
}

func message(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return http.StatusText(http.StatusForbidden)
}

// serve passes a request on to the port that it names.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, t target) {
	sb, err := g.find(r, t)
	if err == nil {
		err = g.authorize(r, t, &sb)
	}
	if err == nil && sb.State != sandbox.Running && sb.State != sandbox.Provisioning {
		sb, err = g.awake(r, &sb)
	}
	if err != nil {
		t.fail(w, r, err)
		return
	}
	record := access.FromContext(r.Context())
	record.In(string(sb.ID), string(sb.Workspace))
	answers := map[uint16]func(http.ResponseWriter, *http.Request, sandbox.Sandbox){
		envd.Port: g.Envd.ServeSandbox, interpreter.Port: g.Interpreter.ServeSandbox,
	}
	if serve, ok := answers[t.port]; ok {
		leave, err := g.Ports.Enter(sb.Workspace)
		if err != nil {
			t.fail(w, r, err)
			return
		}
		defer leave()
		serve(w, r, sb)
		return
	}
	r2 := r.Clone(r.Context())
	for _, name := range []string{idHeader, portHeader, trafficHeader} {
		r2.Header.Del(name)
	}
	g.Ports.ServeDirect(w, r2, proxy.Direct{Sandbox: sb, Port: t.port, SharedHost: !t.host, Fail: t.fail})
}

// find returns the sandbox that a request names. Errors: NotFound; Ended; QuotaExceeded after too many
// names of no sandbox.
func (g *Gateway) find(r *http.Request, t target) (sandbox.Sandbox, error) {
	if g.guesses.TooMany(r.RemoteAddr) {
		if !g.Service.Lives(t.id) { // others are looked up on the disk
			return sandbox.Sandbox{}, tooMany()
		}
	}
	b, sb, err := g.Service.FindID(r.Context(), t.id)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		g.guesses.Wrong(r.RemoteAddr)
	}
	if err == nil && (b == nil || sb.State == sandbox.Destroying || sb.State.Ended()) {
		err = sandbox.Errorf(sandbox.Ended, "the sandbox has ended")
	}
	return sb, err
}

// authorize returns an error when a visitor may not use the port. Envd checks its callers itself.
func (g *Gateway) authorize(r *http.Request, t target, sb *sandbox.Sandbox) error {
	if t.port == envd.Port || e2b.Public(sb) {
		return nil
	}
	ok, err := g.Credentials.Check(e2b.Traffic, sb.ID, r.Header.Get(trafficHeader))
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Forbidden, "Missing or wrong traffic access token; send it in %s", trafficHeader)
	}
	return err
}

// awake resumes a paused sandbox for a request, if it is to be. Errors: NotRunning otherwise.
func (g *Gateway) awake(r *http.Request, sb *sandbox.Sandbox) (sandbox.Sandbox, error) {
	if !e2b.AutoResume(sb) {
		return *sb, sandbox.Errorf(sandbox.NotRunning, "the sandbox is paused")
	}
	owner := sandbox.Caller{User: sb.CreatedBy, Workspace: sb.Workspace}
	return e2b.Resume(r.Context(), g.Service, owner, sb, 0, lifecycle.ResumeRequest{})
}
