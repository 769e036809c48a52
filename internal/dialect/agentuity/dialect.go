package agentuity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxWait bounds the wait of a request: clients give up after 5 minutes.
	maxWait = 270 * time.Second
	// bodyMax bounds JSON bodies, which may contain files in base64.
	bodyMax = sandbox.ExecutionFilesMax/3*4 + 1<<20
)

// Dialect serves /sandbox/…, /fs/…, /cli/sandbox… and /streams/….
type Dialect struct {
	svc       *lifecycle.Service
	catalogue *catalogue.Catalogue
	urls      URLs
}

// New returns the dialect.
func New(svc *lifecycle.Service, images *catalogue.Catalogue, urls URLs) *Dialect {
	return &Dialect{svc: svc, catalogue: images, urls: urls}
}

// Register adds the routes to mux.
func (d *Dialect) Register(mux *auth.Mux) {
	inside, commands := d.svc.Guest(), d.svc.Executions()
	find, urls := &finder{svc: d.svc, executions: commands}, links{d.urls}
	runtimes := &runtimes{catalogue: d.catalogue}
	snapshots := &snapshots{finder: find, runtimes: runtimes, svc: d.svc, urls: d.urls}
	for _, h := range []interface{ register(m routes) }{
		&sandboxes{
			finder: find, links: urls, runtimes: runtimes, snapshots: snapshots, svc: d.svc, guest: inside, catalogue: d.catalogue,
		},
		&executions{finder: find, links: urls, executions: commands, starting: map[sandbox.ID]bool{}},
		&jobs{finder: find, links: urls, executions: commands},
		&files{finder: find, guest: inside},
		&checkpoints{finder: find, service: d.svc.Checkpoints()},
		runtimes, snapshots,
		&builds{runtimes: runtimes, snapshots: snapshots, svc: d.svc},
		&streams{executions: commands},
		&cli{finder: find, svc: d.svc},
		&statistics{finder: find, svc: d.svc},
	} {
		h.register(routes{mux})
	}
}

type handler func(w http.ResponseWriter, r *http.Request) error

// routes adds the routes of a noun.
type routes struct{ mux *auth.Mux }

// add adds a route whose errors have a style.
func (m routes) add(pattern string, errors style, h handler) {
	m.mux.Handle(pattern, auth.Rule{Needs: needs[pattern], Action: actions[pattern], Fail: errors.write, Workspace: organization}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			errors.write(w, r, err)
		}
	}))
}

// organization returns the workspace that the request names as organization, "" when it names none.
// It does not check whether the caller is a member.
func organization(r *http.Request) (string, error) {
	org := cmp.Or(r.URL.Query().Get("orgId"), r.PathValue("org"))
	if org == "" {
		return "", nil
	}
	if ws, ok := internal[sandbox.WorkspaceID](prefixOrg, org); ok {
		return string(ws), nil
	}
	if ws, ok := sandbox.ParseID(org); ok {
		return string(ws), nil
	}
	return "", &sandbox.Error{Code: sandbox.NotFound, Field: "orgId", Message: "there is no such organization; give the id of a workspace"}
}

func caller(ctx context.Context) sandbox.Caller {
	id, _ := auth.FromContext(ctx)
	return sandbox.Caller{User: id.User, Workspace: id.Workspace, ReadOnly: !id.May(account.SandboxesWrite)}
}

// decode reads a JSON body. It ignores unknown fields: newer clients send more of them.
func decode[T any](w http.ResponseWriter, r *http.Request) (v T, err error) {
	return decodeMax[T](w, r, bodyMax)
}

// decodeMax is decode with a limit of its own.
func decodeMax[T any](w http.ResponseWriter, r *http.Request, most int64) (v T, err error) {
	body, end := edge.Body(w, r, most)
	defer end()
	if err = json.NewDecoder(body).Decode(&v); err == nil {
		err = edge.Rest(body)
	}
	var maxBytes *http.MaxBytesError
	var coded *sandbox.Error
	switch {
	case err == nil:
		return v, nil
	case errors.As(err, &coded):
		return v, err
	case errors.As(err, &maxBytes):
		return v, sandbox.Errorf(sandbox.TooLarge, "the body has more than %d bytes", most)
	case errors.Is(err, io.EOF):
		return v, sandbox.InvalidField("body", "must be a JSON object")
	default:
		return v, sandbox.Wrap(sandbox.Invalid, err, "the body is not a valid JSON object for this call")
	}
}

// duration parses a duration in the clients' format; def is the value of "".
func duration(field, s string, def time.Duration) (time.Duration, error) {
	if s == "" {
		return def, nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, sandbox.InvalidField(field, "%q is not a duration such as 500ms, 30s, 10m or 24h", s)
	}
	return v, nil
}

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

// descending reads the direction of a list.
func descending(r *http.Request, def bool) (bool, error) {
	switch strings.ToLower(r.URL.Query().Get("direction")) {
	case "":
		return def, nil
	case "asc":
		return false, nil
	case "desc":
		return true, nil
	}
	return false, sandbox.InvalidField("direction", "must be asc or desc")
}
