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
	"sync"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// holdMax is how long a request may wait: clients give up after 5 minutes.
	holdMax = 270 * time.Second
	// bodyMax bounds JSON bodies, which may contain files in base64.
	bodyMax = sandbox.ExecutionFilesMax/3*4 + 1<<20
)

// URLs returns the URLs of the server and of sandboxes.
type URLs interface {
	// Server returns the URL of the server, without a slash at the end.
	Server() string
	// Sandbox returns the URL for the label of a published port, without a slash at the end.
	Sandbox(label string) string
}

// Dialect serves /sandbox/…, /fs/…, /cli/sandbox… and /streams/….
type Dialect struct {
	svc        *lifecycle.Service
	guest      *guest.Calls
	executions *execution.Service
	catalogue  *catalogue.Catalogue
	urls       URLs

	mu       sync.Mutex
	starting map[sandbox.ID]bool // sandboxes in which a command is being started; guarded by mu
}

// New returns the dialect.
func New(svc *lifecycle.Service, images *catalogue.Catalogue, urls URLs) *Dialect {
	return &Dialect{svc: svc, guest: svc.Guest(), executions: svc.Executions(), catalogue: images, urls: urls, starting: map[sandbox.ID]bool{}}
}

type handler func(w http.ResponseWriter, r *http.Request) error

// Register adds the routes to mux.
func (d *Dialect) Register(mux *auth.Mux) {
	const job = "/sandbox/sandboxes/{id}/jobs"
	for pattern, h := range map[string]handler{
		"POST /sandbox":                                      d.create,
		"GET /sandbox":                                       d.list,
		"GET /sandbox/{id}":                                  d.get,
		"GET /sandbox/status/{id}":                           d.status,
		"DELETE /sandbox/{id}":                               d.destroy,
		"POST /sandbox/{id}/pause":                           d.pause,
		"POST /sandbox/{id}/resume":                          d.resume,
		"PATCH /sandbox/env/{id}":                            d.updateEnv,
		"GET /sandbox/execution/{execution}":                 d.execution,
		"GET /sandbox/sandboxes/{id}/executions":             d.listExecutions,
		"GET /sandbox/sandboxes/{id}/events":                 d.events,
		"POST " + job:                                        d.createJob,
		"GET " + job:                                         d.jobs,
		"GET " + job + "/{job}":                              d.job,
		"DELETE " + job + "/{job}":                           d.stopJob,
		"POST /fs/{id}":                                      d.writeFiles,
		"POST /fs/mkdir/{id}":                                d.mkdir,
		"POST /fs/rmdir/{id}":                                d.rmdir,
		"POST /fs/rm/{id}":                                   d.rm,
		"GET /fs/list/{id}":                                  d.listFiles,
		"POST /sandbox/{id}/checkpoint":                      d.createCheckpoint,
		"GET /sandbox/checkpoints/{id}":                      d.checkpoints,
		"POST /sandbox/{id}/checkpoint/{checkpoint}/restore": d.restoreCheckpoint,
		"DELETE /sandbox/{id}/checkpoint/{checkpoint}":       d.deleteCheckpoint,
		"GET /sandbox/runtimes":                              d.runtimes,
		"GET /cli/sandbox":                                   d.cliList,
		"GET /cli/sandbox/{id}":                              d.cliGet,
		"GET /services/stats/{org}":                          d.stats,
		"GET /cli/region":                                    d.regions,
		"GET /cli/organization":                              d.organizations,
		"POST /sandbox/{id}/snapshot":                        d.createSnapshot,
		"GET /sandbox/snapshots":                             d.snapshots,
		"POST /sandbox/snapshots/build":                      d.beginBuild,
		"PUT /sandbox/snapshots/{snapshot}/upload":           d.uploadBuild,
		"POST /sandbox/snapshots/{snapshot}/finalize":        d.finishBuild,
		"GET /sandbox/snapshots/lineage":                     d.lineage,
		"GET /sandbox/snapshots/{snapshot}":                  d.snapshot,
		"PATCH /sandbox/snapshots/{snapshot}":                d.tagSnapshot,
		"DELETE /sandbox/snapshots/{snapshot}":               d.deleteSnapshot,
	} {
		d.handle(mux, pattern, byCode, h)
	}
	d.handle(mux, "POST /sandbox/{id}/execute", byExecute, d.execute)
	for pattern, h := range map[string]handler{
		"GET /fs/{id}":          d.readFile,
		"GET /fs/download/{id}": d.download,
		"POST /fs/upload/{id}":  d.upload,
		"POST /streams":         d.createStream,
		"PUT /streams/{stream}": d.writeStream,
	} {
		d.handle(mux, pattern, byStatus, h)
	}
	// The routes below need no token. The ID of a stream is the permission to read it.
	d.handle(mux, "GET /streams/{stream}", byStatus, d.readStream)
	d.handle(mux, "POST /cli/validate/apt-dependencies", byCode, d.validateAptPackages)
	d.handle(mux, "GET /sandbox/snapshots/public", byCode, d.publicSnapshots)
	d.handle(mux, "GET /sandbox/snapshots/public/{snapshot}", byCode, d.publicSnapshot)
}

// handle adds a route.
func (d *Dialect) handle(mux *auth.Mux, pattern string, errors style, h handler) {
	mux.Handle(pattern, auth.Rule{Needs: needs[pattern], Action: actions[pattern], Fail: errors.write, Workspace: organization}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	err = json.NewDecoder(body).Decode(&v)
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

// found returns the sandbox in the request's path, unless it was deleted.
func (d *Dialect) found(r *http.Request) (sandbox.Sandbox, error) {
	sb, err := d.any(r)
	if err == nil && deleted(&sb) {
		return sandbox.Sandbox{}, noSandbox()
	}
	return sb, err
}

// any is like found, and also returns deleted sandboxes.
func (d *Dialect) any(r *http.Request) (sandbox.Sandbox, error) {
	id, ok := internal[sandbox.ID](prefixSandbox, r.PathValue("id"))
	if !ok {
		return sandbox.Sandbox{}, noSandbox()
	}
	sb, err := d.svc.Get(r.Context(), caller(r.Context()), string(id))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Sandbox{}, noSandbox()
	}
	return sb, err
}

// usable is like found, for calls into a sandbox: it waits for a sandbox that is being created.
func (d *Dialect) usable(r *http.Request) (sandbox.Sandbox, error) {
	sb, err := d.found(r)
	if err != nil || sb.State != sandbox.Provisioning {
		return sb, err
	}
	return d.started(r.Context(), &sb)
}

// started waits until a sandbox runs.
func (d *Dialect) started(ctx context.Context, sb *sandbox.Sandbox) (sandbox.Sandbox, error) {
	return d.svc.Wait(ctx, caller(ctx), string(sb.ID), sandbox.Running, holdMax)
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
