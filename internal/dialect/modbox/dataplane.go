package modbox

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// keyVariable is the sandbox's environment variable with the key that protects its API; the
	// caller sets it at provision.
	keyVariable = "SANDBOX_API_KEY"

	apiPrefix   = "/modbox/api/"
	executePath = "/execute"

	// viaURL is the value of Via in the audit log for access by a sandbox's URL, and its key.
	viaURL = "sandbox-url"
)

// DataPlane serves the product's API on the URLs of sandboxes: commands, files and code. Safe for
// concurrent use.
type DataPlane struct {
	guest  *guest.Calls
	access Access
	mux    *http.ServeMux
}

// NewDataPlane returns the data plane, which records its operations in log. Both interfaces of asks
// must be set.
func NewDataPlane(svc *lifecycle.Service, asks Access, log *audit.Log) *DataPlane {
	d := &DataPlane{guest: svc.Guest(), access: asks, mux: http.NewServeMux()}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, *visit) error{
		"POST /execute":                              d.execute,
		"POST /modbox/api/exec":                      d.exec,
		"POST /modbox/api/files/upload":              d.upload,
		"GET /modbox/api/files":                      d.listFiles,
		"GET /modbox/api/files/list":                 d.listFiles,
		"GET /modbox/api/files/download":             d.download,
		"GET /modbox/api/files/download/{filename}":  d.download,
		"GET /modbox/api/files/{filename}":           d.download,
		"DELETE /modbox/api/files/delete/{filename}": d.deleteFile,
		"DELETE /modbox/api/files/{filename}":        d.deleteFile,
		"POST /modbox/api/files/delete":              d.deleteNamed,
	} {
		var served http.Handler = handler(func(w http.ResponseWriter, r *http.Request) error {
			return h(w, r, visitOf(r.Context()))
		})
		var op *audit.Operation
		if action := planeActions[pattern]; action != "" {
			op = &audit.Operation{Action: action, Route: pattern, Fail: writeError}
			served = log.IntentHandler(op, served)
		}
		served = d.authorize(served)
		if op != nil {
			served = log.Handler(op, served)
		}
		d.mux.Handle(pattern, access.Routed(pattern, served))
	}
	return d
}

// authorize passes on requests with the credential that their sandbox demands, and records the
// sandbox.
func (d *DataPlane) authorize(next http.Handler) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) error {
		v := visitOf(r.Context())
		e := audit.FromContext(r.Context())
		e.Via(viaURL, v.sb.Workspace)
		e.Object("sandbox", v.ref, v.sb.Name)
		if err := d.enter(w, r, v); err != nil {
			return err
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// enter determines the caller of the visit.
func (d *DataPlane) enter(w http.ResponseWriter, r *http.Request, v *visit) (err error) {
	v.caller, err = d.access.authorize(r, &v.sb)
	if sandbox.CodeOf(err) == sandbox.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sandbox"`)
	}
	return err
}

// visit is a request to a sandbox. A client that knows its URL, and its key if it has one, acts for
// its owner.
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

// ServeSandbox serves /modbox/api/* and POST /execute of a running sandbox and leaves all other
// requests to the sandbox.
func (d *DataPlane) ServeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if !strings.HasPrefix(r.URL.Path, apiPrefix) && (path != executePath || r.Method != http.MethodPost) {
		return false
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	v := &visit{sb: sb, ref: string(sb.ID)}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	u := *r.URL
	u.Path, u.RawPath = path, strings.TrimSuffix(u.RawPath, "/")
	r.URL = &u
	if _, pattern := d.mux.Handler(r); pattern == "" {
		err := d.enter(w, r, v)
		if err == nil {
			err = sandbox.Errorf(sandbox.NotFound, "there is no route %s %s", r.Method, path)
		}
		writeError(w, r, err)
		return true
	}
	d.mux.ServeHTTP(w, r)
	return true
}

// authorized compares hashes, so that the duration reveals neither the content nor the length of
// the key.
func authorized(r *http.Request, key string) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// commands returns where commands of the visit run.
func (d *DataPlane) commands(v *visit) command.Sandbox {
	return command.Sandbox{
		Shell: true,
		Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
			return d.guest.Exec(ctx, v.caller, v.ref, cmd)
		},
	}
}
