package e2b

import (
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/sandbox"
)

// templates tells which templates exist.
type templates struct{ base }

func (t *templates) routes() map[string]route {
	return map[string]route{
		"GET /templates/aliases/{alias}": {account.SandboxesRead, "", t.alias},
	}
}

func (t *templates) alias(w http.ResponseWriter, r *http.Request) error {
	alias := r.PathValue("alias")
	out := struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{TemplateID: alias}
	image, snapshot, err := t.source(r.Context(), alias)
	switch {
	case err != nil:
		return err
	case snapshot != "":
		out.TemplateID = snapshotID(sandbox.SnapshotID(snapshot))
	case image == alias:
		if _, err := t.images.Choose(r.Context(), caller(r.Context()).Workspace, catalogue.Wanted{Ref: image}); err != nil {
			return sandbox.Errorf(sandbox.NotFound, "there is no template %q", sandbox.Excerpt(alias))
		}
		out.Public = true
	default:
		out.Public = true
	}
	return answer(w, http.StatusOK, out)
}

// absent answers requests for what Modbox does not have, such as volumes, secrets, teams and builds of
// templates: that it is not available. The clients would take a route that does not exist for an
// object that does not.
func absent(_ http.ResponseWriter, r *http.Request) error {
	return sandbox.Errorf(sandbox.Unsupported, "%s %s is not available on this server", r.Method, sandbox.Excerpt(strings.TrimPrefix(r.URL.Path, Prefix)))
}

func absentField(name string) error {
	return sandbox.InvalidField(name, "is not available on this server; leave it out")
}
