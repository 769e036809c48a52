package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/dialect/e2b/template"
	"github.com/modbox/modbox/internal/sandbox"
)

// templates shows, tags and deletes templates. A snapshot is a template, and an image that the workspace has
// built is a template.
type templates struct{ base }

func (t *templates) routes() map[string]route {
	return map[string]route{
		"GET /templates":                  {account.SandboxesRead, "", t.list},
		"GET /templates/{template}":       {account.SandboxesRead, "", t.get},
		"GET /templates/{first}/{second}": {account.SandboxesRead, "", t.aliasOrTags},
		"POST /templates/tags":            {account.ImagesWrite, "build-image", t.assign},
		"DELETE /templates/tags":          {account.ImagesWrite, "delete-image", t.unassign},
		"DELETE /templates/{template}":    {account.SandboxesWrite, "delete-image", t.remove},
	}
}

// templateInfo describes a template.
type templateInfo struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      int64      `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *string    `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	BuildCount    int        `json:"buildCount"`
	BuildStatus   string     `json:"buildStatus"`
	EnvdVersion   string     `json:"envdVersion"`
}

func templateInfoOf(t *template.Template) templateInfo {
	return templateInfo{
		TemplateID: t.Name, BuildID: string(t.Tags[0].ImageID), CPUCount: t.CPUCount, MemoryMB: t.MemoryMB, DiskSizeMB: t.SizeBytes / mebibyte,
		Aliases: []string{t.Name}, Names: []string{t.Name}, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
		BuildCount: len(t.Tags), BuildStatus: string(template.Ready), EnvdVersion: Version,
	}
}

func (t *templates) list(w http.ResponseWriter, r *http.Request) error {
	list, err := t.built.List(r.Context(), caller(r.Context()).Workspace)
	if err != nil {
		return err
	}
	out := make([]templateInfo, len(list))
	for i := range list {
		out[i] = templateInfoOf(&list[i])
	}
	return answer(w, http.StatusOK, out)
}

func (t *templates) get(w http.ResponseWriter, r *http.Request) error {
	found, err := t.built.Get(r.Context(), caller(r.Context()).Workspace, r.PathValue("template"))
	if err != nil {
		return err
	}
	type buildInfo struct {
		BuildID    string    `json:"buildID"`
		Status     string    `json:"status"`
		CPUCount   int64     `json:"cpuCount"`
		MemoryMB   int64     `json:"memoryMB"`
		CreatedAt  time.Time `json:"createdAt"`
		UpdatedAt  time.Time `json:"updatedAt"`
		FinishedAt time.Time `json:"finishedAt"`
	}
	out := struct {
		templateInfo
		Builds []buildInfo `json:"builds"`
	}{templateInfo: templateInfoOf(&found), Builds: []buildInfo{}}
	for _, tag := range found.Tags {
		at := tag.CreatedAt.UTC()
		out.Builds = append(out.Builds, buildInfo{string(tag.ImageID), string(template.Ready), found.CPUCount, found.MemoryMB, at, at, at})
	}
	return answer(w, http.StatusOK, out)
}

// aliasOrTags serves /templates/aliases/{alias} and /templates/{template}/tags, which the mux cannot tell apart.
func (t *templates) aliasOrTags(w http.ResponseWriter, r *http.Request) error {
	switch first, second := r.PathValue("first"), r.PathValue("second"); {
	case first == "aliases":
		return t.alias(w, r, second)
	case second == "tags":
		return t.tags(w, r, first)
	}
	return absent(w, r)
}

func (t *templates) alias(w http.ResponseWriter, r *http.Request, alias string) error {
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
	case image == template.Reference(alias):
		if out.Public, err = t.exists(r.Context(), image); err != nil {
			return err
		}
	default:
		out.Public = true
	}
	return answer(w, http.StatusOK, out)
}

// exists reports whether an image is for all workspaces. Errors: NotFound for an image that does not exist.
func (t *templates) exists(ctx context.Context, image string) (public bool, err error) {
	ws := caller(ctx).Workspace
	_, err = t.built.Get(ctx, ws, image)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return false, err
	}
	if _, err := t.images.Choose(ctx, ws, catalogue.Wanted{Ref: image}); err != nil {
		return false, sandbox.Errorf(sandbox.NotFound, "there is no template %q", sandbox.Excerpt(image))
	}
	return true, nil
}

// templateTag is a tag of a template.
type templateTag struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (t *templates) tags(w http.ResponseWriter, r *http.Request, name string) error {
	found, err := t.built.Get(r.Context(), caller(r.Context()).Workspace, name)
	if err != nil {
		return err
	}
	out := make([]templateTag, len(found.Tags))
	for i, tag := range found.Tags {
		out[i] = templateTag{tag.Name, string(tag.ImageID), tag.CreatedAt.UTC()}
	}
	return answer(w, http.StatusOK, out)
}

func (t *templates) assign(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}](w, r)
	if err != nil {
		return err
	}
	id, err := t.built.Assign(r.Context(), caller(r.Context()), in.Target, in.Tags)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{string(id), in.Tags})
}

func (t *templates) unassign(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}](w, r)
	if err != nil {
		return err
	}
	if len(in.Tags) == 0 {
		return sandbox.InvalidField("tags", "must name a tag")
	}
	if err := t.built.Remove(r.Context(), caller(r.Context()), in.Name, in.Tags); err != nil {
		return err
	}
	return answerNothing(w)
}

// remove deletes the snapshot that the path names, or else all tags of the template.
func (t *templates) remove(w http.ResponseWriter, r *http.Request) error {
	ctx, name := r.Context(), r.PathValue("template")
	sn, err := t.snapshot(ctx, name)
	switch sandbox.CodeOf(err) {
	case "":
		err = t.svc.Snapshots().Delete(ctx, caller(ctx), string(sn.ID))
	case sandbox.NotFound, sandbox.Invalid:
		if !mayBuild(ctx) {
			if _, err := t.built.Get(ctx, caller(ctx).Workspace, name); err != nil {
				return err
			}
			return forbidden()
		}
		err = t.built.Remove(ctx, caller(ctx), name, nil)
	}
	if err != nil {
		return err
	}
	return answerNothing(w)
}

// absences say why something is not there, by the first segment of its path.
var absences = map[string]string{
	"volumes":       "volumes are not available on this server; keep files in a snapshot or a template",
	"volumecontent": "volumes are not available on this server; keep files in a snapshot or a template",
	"secrets":       "secrets are not available on this server; pass values to a sandbox in its environment variables",
}

// absent answers requests for what Modbox does not have, such as volumes, secrets and teams: that it is
// not available. The clients would take a route that does not exist for an object that does not.
func absent(_ http.ResponseWriter, r *http.Request) error {
	path := strings.TrimPrefix(r.URL.Path, Prefix)
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	why, ok := absences[first]
	if r.Method == http.MethodPatch && (first == "templates" || strings.HasPrefix(path, "/v2/templates/")) {
		why, ok = "on this server templates are private to their workspace: they cannot be published or unpublished", true
	}
	if ok {
		return sandbox.Errorf(sandbox.Unsupported, "%s (%s %s)", why, r.Method, sandbox.Excerpt(path))
	}
	return sandbox.Errorf(sandbox.Unsupported, "%s %s is not available on this server", r.Method, sandbox.Excerpt(path))
}

func absentField(name string) error {
	return sandbox.InvalidField(name, "is not available on this server; leave it out")
}
