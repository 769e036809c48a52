package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/dialect/e2b/template"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// bodyMax bounds JSON bodies.
const bodyMax = 1 << 20

// Dialect serves the routes of the control plane beneath [Prefix]: /sandboxes…, /v2/sandboxes…,
// /snapshots, /templates….
type Dialect struct {
	sandboxes *sandboxes
	states    *states
	snapshots *snapshots
	templates *templates
	builds    *builds
}

// Deps are the services that the dialect uses.
type Deps struct {
	Service     *lifecycle.Service
	Images      *catalogue.Catalogue
	Credentials Credentials
	Templates   *template.Builds
	// Domain is the base domain of sandbox hosts, with a port unless it is the default port; "" for none.
	Domain string
	// URL is the address of the server without a path, for uploads.
	URL string
}

// New returns the dialect.
func New(d Deps) *Dialect {
	b := base{svc: d.Service, images: d.Images, credentials: d.Credentials, built: d.Templates, domain: d.Domain}
	return &Dialect{sandboxes: &sandboxes{b}, states: &states{b}, snapshots: &snapshots{b}, templates: &templates{b}, builds: &builds{b, d.URL}}
}

type handler func(w http.ResponseWriter, r *http.Request) error

// route is a handler with the permission that it needs and its action in the audit log.
type route struct {
	needs  account.Permission
	action string
	handle handler
}

// Prefix begins the paths of all routes on the server: other dialects have routes with the same
// paths. Package gateway adds it to requests that have an API key in the form of E2B's clients.
const Prefix = "/e2b"

// volumeContent begins the paths of the files of volumes.
const volumeContent = "/volumecontent/"

// Register adds the routes to mux.
func (d *Dialect) Register(mux *auth.Mux) {
	add := func(pattern string, needs account.Permission, action string, h handler) {
		mux.Handle(pattern, auth.Rule{Needs: needs, Action: action, Fail: WriteError}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				WriteError(w, r, err)
			}
		}))
	}
	for _, routes := range []map[string]route{d.sandboxes.routes(), d.states.routes(), d.snapshots.routes(), d.templates.routes(), d.builds.routes()} {
		for pattern, rt := range routes {
			add(strings.Replace(pattern, " ", " "+Prefix, 1), rt.needs, rt.action, rt.handle)
		}
	}
	// Clients ask without a key whether the server answers.
	add("GET "+Prefix+"/health", auth.Public, "", healthy)
	add("GET /health", auth.Public, "", healthy)
	// The credential of a volume is not a token of the server's.
	add(Prefix+volumeContent, auth.Public, "", absent)
	add(volumeContent, auth.Public, "", absent)
	add(Prefix+"/", auth.SignedIn, "", absent)
}

func healthy(w http.ResponseWriter, _ *http.Request) error {
	_, _ = io.WriteString(w, "Health check successful") // the client is gone when this fails
	return nil
}

// base has the services that all handlers use.
type base struct {
	svc         *lifecycle.Service
	images      *catalogue.Catalogue
	credentials Credentials
	built       *template.Builds
	domain      string
}

func caller(ctx context.Context) sandbox.Caller {
	id, _ := auth.FromContext(ctx)
	return sandbox.Caller{User: id.User, Workspace: id.Workspace, ReadOnly: !id.May(account.SandboxesWrite)}
}

// Decode reads a JSON body, which may be missing. It ignores unknown fields.
func Decode[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	return DecodeMax[T](w, r, bodyMax)
}

// DecodeMax is Decode with a limit of its own, in bytes.
func DecodeMax[T any](w http.ResponseWriter, r *http.Request, most int64) (v T, err error) {
	body, end := edge.Body(w, r, most)
	defer end()
	if err = json.NewDecoder(body).Decode(&v); err == nil {
		err = edge.Rest(body)
	}
	var maxBytes *http.MaxBytesError
	var coded *sandbox.Error
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return v, nil
	case errors.As(err, &coded):
		return v, err
	case errors.As(err, &maxBytes):
		return v, sandbox.Errorf(sandbox.TooLarge, "the body has more than %d bytes", most)
	default:
		return v, sandbox.Wrap(sandbox.Invalid, err, "the body is not a valid JSON object for this call")
	}
}

// found returns the sandbox in the request's path, unless it has ended. Errors: NotFound.
func (b *base) found(r *http.Request) (sandbox.Sandbox, error) {
	name := r.PathValue("id")
	id, ok := ParseSandboxID(name)
	if !ok {
		return sandbox.Sandbox{}, noSandbox(name)
	}
	sb, err := b.svc.Get(r.Context(), caller(r.Context()), string(id))
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && over(&sb) {
		return sandbox.Sandbox{}, noSandbox(name)
	}
	return sb, err
}

// over reports whether a sandbox is gone for the clients.
func over(sb *sandbox.Sandbox) bool { return sb.State == sandbox.Destroying || sb.State.Ended() }

// number reads a number of the query, from low to high; def is the default.
func number(r *http.Request, name string, def, low, high int) (int, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, sandbox.InvalidField(name, "must be %d to %d", low, high)
	}
	return n, nil
}
