package modbox

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// The ranges of the product's fields.
const (
	waitDefault, waitMax = 120, 600
	pollDefault, pollMax = 5, 60
	ttlMin               = int(sandbox.TTLMin / time.Second)
	ttlMax               = int(sandbox.TTLMax / time.Second)
	// listPages bounds a list, which has no paging: 10,000 sandboxes.
	listPages, listPage = 10, 1000
)

// needs is the permission of each route; a route without one keeps the server from starting.
var needs = map[string]account.Permission{
	"POST /sandboxes/provision":          account.SandboxesWrite,
	"POST /sandboxes/wait":               account.SandboxesRead,
	"GET /sandboxes/detail/{sandbox_id}": account.SandboxesRead,
	"GET /sandboxes":                     account.SandboxesRead,
	"POST /sandboxes/destroy":            account.SandboxesWrite,
	"GET /sandbox-images":                account.ImagesRead,
	"POST /sandbox-images":               account.ImagesWrite,
	"GET /sandbox-images/{image_id}":     account.ImagesRead,
	"PUT /sandbox-images/{image_id}":     account.ImagesWrite, // for a built-in image also Administer
	"DELETE /sandbox-images/{image_id}":  account.ImagesWrite,
	"POST /registries":                   account.ImagesWrite,
	"GET /registries":                    account.ImagesRead,
	"GET /registries/{registry_id}":      account.ImagesRead,
	"PUT /registries/{registry_id}":      account.ImagesWrite,
	"DELETE /registries/{registry_id}":   account.ImagesWrite,

	"POST /auth/login":                              auth.Public,
	"POST /auth/refresh":                            auth.Public,
	"POST /auth/logout":                             auth.SignedIn,
	"POST /api-tokens":                              account.TokensWrite,
	"GET /api-tokens":                               account.TokensRead,
	"DELETE /api-tokens/{token}":                    account.TokensWrite,
	"POST /workspaces":                              account.AccountWrite,
	"GET /workspaces":                               auth.SignedIn,
	"GET /workspaces/{workspace}":                   account.WorkspacesRead,
	"PUT /workspaces/{workspace}":                   account.WorkspacesWrite,
	"DELETE /workspaces/{workspace}":                account.WorkspacesDelete,
	"POST /workspaces/{workspace}/members":          account.MembersWrite,
	"PUT /workspaces/{workspace}/members/{user}":    account.MembersWrite,
	"DELETE /workspaces/{workspace}/members/{user}": account.WorkspacesRead, // to leave; removing others needs more
}

// Control is the control plane: /sandboxes/…, /sandbox-images, /registries and accounts.
type Control struct {
	svc        *lifecycle.Service
	auth       *auth.Authenticator
	accounts   *auth.Accounts
	registries *registry.Registries
	catalogue  *catalogue.Catalogue
	url        func(label string) string
}

// NewControl returns the control plane. url returns a sandbox's URL for its host label.
func NewControl(svc *lifecycle.Service, a *auth.Authenticator, accounts *auth.Accounts, registries *registry.Registries, images *catalogue.Catalogue, url func(label string) string) *Control {
	return &Control{svc: svc, auth: a, accounts: accounts, registries: registries, catalogue: images, url: url}
}

// Register adds the routes to mux. The server handles trailing slashes.
func (c *Control) Register(mux *auth.Mux) {
	routes := c.accountRoutes()
	maps.Copy(routes, map[string]handler{
		"POST /sandboxes/provision":          c.provision,
		"POST /sandboxes/wait":               c.wait,
		"GET /sandboxes/detail/{sandbox_id}": c.detail,
		"GET /sandboxes":                     c.list,
		"POST /sandboxes/destroy":            c.destroy,
		"GET /sandbox-images":                c.listImages,
		"POST /sandbox-images":               c.createImage,
		"GET /sandbox-images/{image_id}":     c.getImage,
		"PUT /sandbox-images/{image_id}":     c.updateImage,
		"DELETE /sandbox-images/{image_id}":  c.deleteImage,
		"POST /registries":                   c.createRegistry,
		"GET /registries":                    c.listRegistries,
		"GET /registries/{registry_id}":      c.getRegistry,
		"PUT /registries/{registry_id}":      c.updateRegistry,
		"DELETE /registries/{registry_id}":   c.deleteRegistry,
	})
	for pattern, h := range routes {
		mux.Handle(pattern, auth.Rule{Needs: needs[pattern], Action: actions[pattern], Fail: writeError}, h)
	}
}

func caller(ctx context.Context) sandbox.Caller {
	id, _ := auth.FromContext(ctx)
	return sandbox.Caller{User: id.User, Workspace: id.Workspace, ReadOnly: !id.May(account.SandboxesWrite)}
}

// provisioned is the answer to provision.
type provisioned struct {
	Success    bool    `json:"success"`
	Error      *string `json:"error"`
	SandboxID  string  `json:"sandbox_id"`
	SandboxURL string  `json:"sandbox_url"`
	Status     string  `json:"status"`
}

func (c *Control) provision(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	req := lifecycle.CreateRequest{
		Name:    in.str("task_id", true, 1, sandbox.NameMax),
		ImageID: sandbox.ImageID(in.uuid("image_id")),
		Image:   in.str("image", false, 1, sandbox.ImageRefMax),
		TTL:     time.Duration(in.integer("ttl_seconds", 0, ttlMin, ttlMax)) * time.Second,
		Env:     in.dict("env_vars"),
		Replace: in.boolean("replace"),
	}
	if err := in.err(); err != nil {
		return err
	}
	if req.WaitForQuota, err = edge.WaitForQuota(r); err != nil {
		return err
	}
	sb, _, err := c.svc.Create(r.Context(), caller(r.Context()), req)
	if err != nil {
		return err
	}
	return answer(w, provisioned{Success: true, SandboxID: string(sb.ID), SandboxURL: c.url(sb.HostLabel), Status: statusOf(&sb)})
}

func (c *Control) wait(w http.ResponseWriter, r *http.Request) error {
	start := time.Now()
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	name := in.str("task_id", true, 1, sandbox.NameMax)
	timeout := in.integer("timeout", waitDefault, 1, waitMax)
	in.integer("poll_interval", pollDefault, 1, pollMax) // accepted and unused: readiness is signalled, not polled
	if err := in.err(); err != nil {
		return err
	}
	sb, err := c.svc.Wait(r.Context(), caller(r.Context()), name, sandbox.Running, time.Duration(timeout)*time.Second)
	if err != nil {
		return err
	}
	out := struct {
		Ready          bool    `json:"ready"`
		ElapsedSeconds float64 `json:"elapsed_seconds"`
		Status         string  `json:"status"`
		Error          *string `json:"error"`
	}{statusOf(&sb) == string(sandbox.Running), time.Since(start).Seconds(), statusOf(&sb), errorOf(&sb)}
	return answer(w, out)
}

// detail is a sandbox in the product's form; the fields after DestroyedAt are our additions.
type detail struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Status      string     `json:"status"`
	SandboxURL  *string    `json:"sandbox_url"`
	Image       *string    `json:"image"`
	CreatedBy   string     `json:"created_by"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	DestroyedAt *time.Time `json:"destroyed_at"`
	Error       *string    `json:"error"`
	TTLSeconds  *int64     `json:"ttl_seconds"`
	ExpiresAt   *time.Time `json:"expires_at"`
	WorkspaceID string     `json:"workspace_id"`
}

func (c *Control) detail(w http.ResponseWriter, r *http.Request) error {
	sb, err := c.svc.Get(r.Context(), caller(r.Context()), r.PathValue("sandbox_id"))
	if err != nil {
		return err
	}
	return answer(w, c.sandbox(&sb))
}

func (c *Control) sandbox(sb *sandbox.Sandbox) detail {
	d := detail{
		ID: string(sb.ID), Name: sb.Name, Status: statusOf(sb), Image: optional(sb.Image), CreatedBy: string(sb.CreatedBy),
		CreatedAt: sb.CreatedAt, UpdatedAt: sb.UpdatedAt, Error: errorOf(sb), WorkspaceID: string(sb.Workspace),
	}
	if d.Status == string(sandbox.Running) && sb.HostLabel != "" {
		d.SandboxURL = optional(c.url(sb.HostLabel))
	}
	if !sb.EndedAt.IsZero() {
		d.DestroyedAt = &sb.EndedAt
	}
	if deadline, ok := sb.Deadline(); ok {
		ttl := int64(sb.TTL / time.Second)
		d.TTLSeconds, d.ExpiresAt = &ttl, &deadline
	}
	return d
}

// statesOf are the states that each status may have.
var statesOf = map[string][]sandbox.State{
	"":             nil, // all that have not ended
	"provisioning": {sandbox.Provisioning},
	"running":      {sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming},
	"destroyed":    {sandbox.Destroying, sandbox.Destroyed},
	"failed":       {sandbox.Destroying, sandbox.Failed},
}

func (c *Control) list(w http.ResponseWriter, r *http.Request) error {
	// The parameter realm is accepted and ignored.
	status := r.URL.Query().Get("status")
	states, ok := statesOf[status]
	if !ok {
		return &validationError{[]fault{{[]any{"query", "status"}, "Input should be 'provisioning', 'running', 'destroyed' or 'failed'", "enum"}}}
	}
	out := struct {
		Sandboxes []detail `json:"sandboxes"`
		Total     int      `json:"total"`
	}{Sandboxes: []detail{}}
	f := lifecycle.Filter{States: states, Limit: listPage}
	for range listPages {
		page, err := c.svc.List(r.Context(), caller(r.Context()), f)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if d := c.sandbox(&page.Items[i]); status == "" || d.Status == status {
				out.Sandboxes = append(out.Sandboxes, d)
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	out.Total = len(out.Sandboxes)
	return answer(w, out)
}

func (c *Control) destroy(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	name := in.str("task_id", true, 1, 0)
	if err := in.err(); err != nil {
		return err
	}
	out := struct {
		Success bool    `json:"success"`
		Error   *string `json:"error"`
	}{Success: true}
	_, err = c.svc.Destroy(r.Context(), caller(r.Context()), name, sandbox.CauseDestroyed)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		// A client that cleans up a sandbox that was never made should not fail.
		out.Success, out.Error = false, optional("there is no sandbox with this task_id")
	} else if err != nil {
		return err
	}
	return answer(w, out)
}

// statusOf returns the product's status of a sandbox. A sandbox that is being removed has the status
// that it ends with: it cannot be used any more. A paused sandbox counts as running: any use resumes
// it, and this API has no status for it.
func statusOf(sb *sandbox.Sandbox) string {
	switch sb.State {
	case sandbox.Destroying:
		if errorOf(sb) != nil {
			return string(sandbox.Failed)
		}
		return string(sandbox.Destroyed)
	case sandbox.Pausing, sandbox.Paused, sandbox.Resuming:
		return string(sandbox.Running)
	}
	return string(sb.State)
}

// errorOf returns why a sandbox failed; nil when it did not.
func errorOf(sb *sandbox.Sandbox) *string {
	if sb.Cause == nil || sb.Cause.Code.Final() != sandbox.Failed {
		return nil
	}
	return optional(sb.Cause.String())
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
