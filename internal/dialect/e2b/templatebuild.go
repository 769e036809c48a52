package e2b

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/dialect/e2b/template"
	"github.com/modbox/modbox/internal/sandbox"
)

// builds are the builds of templates.
type builds struct {
	base

	url string // of the server
}

// uploadParam has the secret of an upload. It is no part of the path, because the audit log has the names in
// the paths of requests.
const uploadParam = "upload"

// logMax is the number of entries of a log in an answer.
const logMax = 100

func (b *builds) routes() map[string]route {
	return map[string]route{
		"POST /v3/templates":                              {account.ImagesWrite, "build-image", b.begin},
		"GET /templates/{template}/files/{hash}":          {account.ImagesWrite, "", b.address},
		"PUT /templates/{template}/files/{hash}":          {auth.Public, "build-image", b.upload}, // the address has a secret
		"POST /v2/templates/{template}/builds/{build}":    {account.ImagesWrite, "build-image", b.start},
		"GET /templates/{template}/builds/{build}/status": {account.ImagesRead, "", b.status},
		"GET /templates/{template}/builds/{build}/logs":   {account.ImagesRead, "", b.logs},
	}
}

// mayBuild reports whether the caller may change images.
func mayBuild(ctx context.Context) bool {
	id, _ := auth.FromContext(ctx)
	return id.May(account.ImagesWrite)
}

func forbidden() error {
	return sandbox.Errorf(sandbox.Forbidden, "the permission %s is required to delete a template", account.ImagesWrite)
}

func (b *builds) begin(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"` // of older clients
		Tags     []string `json:"tags"`
		CPUCount int64    `json:"cpuCount"`
		MemoryMB int64    `json:"memoryMB"`
	}](w, r)
	if err != nil {
		return err
	}
	name := cmp.Or(in.Name, in.Alias)
	if bare, _, _ := strings.Cut(name, ":"); isOwn(bare) {
		return sandbox.InvalidField("name", "%q is a template of the server; choose another name", bare)
	}
	made, err := b.built.Begin(caller(r.Context()), template.Request{Name: name, Tags: in.Tags, CPUCount: in.CPUCount, MemoryMB: in.MemoryMB})
	if err != nil {
		return err
	}
	return answer(w, http.StatusAccepted, struct {
		TemplateID string   `json:"templateID"`
		BuildID    string   `json:"buildID"`
		Public     bool     `json:"public"`
		Names      []string `json:"names"`
		Aliases    []string `json:"aliases"`
		Tags       []string `json:"tags"`
	}{TemplateID: made.Template, BuildID: made.ID, Names: []string{made.Template}, Aliases: []string{made.Template}, Tags: made.Tags})
}

// address answers where the files with a hash are uploaded.
func (b *builds) address(w http.ResponseWriter, r *http.Request) error {
	name, hash := r.PathValue("template"), r.PathValue("hash")
	secret, err := b.built.Address(caller(r.Context()), name, hash)
	if err != nil {
		return err
	}
	out := struct {
		Present bool   `json:"present"`
		URL     string `json:"url,omitempty"`
	}{Present: secret == ""}
	if !out.Present {
		out.URL = b.url + Prefix + "/templates/" + url.PathEscape(name) + "/files/" + hash + "?" + url.Values{uploadParam: {secret}}.Encode()
	}
	return answer(w, http.StatusCreated, out)
}

func (b *builds) upload(w http.ResponseWriter, r *http.Request) error {
	return b.built.Upload(r.Context(), r.PathValue("template"), r.PathValue("hash"), r.URL.Query().Get(uploadParam), r.ContentLength, r.Body)
}

func (b *builds) start(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[template.Recipe](w, r)
	if err != nil {
		return err
	}
	if given(in.FromImageRegistry) {
		return sandbox.InvalidField("fromImageRegistry", "is not available on this server; add the registry to the workspace with \"modbox registry add\", and leave the credentials out")
	}
	ctx := r.Context()
	found, err := b.built.Find(caller(ctx), r.PathValue("template"), r.PathValue("build"))
	if err != nil {
		return err
	}
	from, err := b.from(ctx, &in)
	if err != nil {
		return err
	}
	if err := b.built.Start(found, from, &in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// ownImages are images of E2B's that stand for templates of the server.
var ownImages = map[string]string{"e2bdev/base": templateBase, "e2bdev/code-interpreter": templateCode}

// from returns the reference for the FROM of a build.
func (b *builds) from(ctx context.Context, in *template.Recipe) (string, error) {
	name := cmp.Or(in.FromTemplate, in.FromImage)
	if name == "" {
		return "", sandbox.InvalidField("fromImage", "or fromTemplate must be set")
	}
	bare, _, _ := strings.Cut(name, ":")
	if own, ok := ownImages[bare]; ok && in.FromTemplate == "" {
		name = own
	}
	if in.FromTemplate == "" && name == in.FromImage {
		return name, nil // also "base" is an image then
	}
	image, snapshot, err := b.source(ctx, name)
	switch {
	case err != nil:
		return "", err
	case snapshot != "":
		sn, err := b.svc.Snapshots().Get(ctx, caller(ctx), snapshot)
		if err != nil {
			return "", err
		}
		if sn.Tag == "" {
			return "", sandbox.InvalidField("fromTemplate", "the snapshot needs a name to be the base of a template; create it with a name")
		}
		return sn.Name + ":" + sn.Tag, nil
	case image == "":
		chosen, err := b.images.DefaultImage(ctx)
		return chosen.Ref(), err
	}
	return image, nil
}

// buildStatus is the state of a build.
type buildStatus struct {
	TemplateID string           `json:"templateID"`
	BuildID    string           `json:"buildID"`
	Status     template.Status  `json:"status"`
	LogEntries []template.Entry `json:"logEntries"`
	Logs       []string         `json:"logs"`
	Reason     *template.Reason `json:"reason,omitempty"`
}

func (b *builds) status(w http.ResponseWriter, r *http.Request) error {
	found, offset, err := b.found(r, "logsOffset")
	if err != nil {
		return err
	}
	out := buildStatus{TemplateID: found.Template, BuildID: found.ID, Logs: []string{}}
	out.Status, out.LogEntries, out.Reason = found.Status(offset, logMax)
	if out.LogEntries == nil {
		out.LogEntries = []template.Entry{}
	}
	return answer(w, http.StatusOK, out)
}

func (b *builds) logs(w http.ResponseWriter, r *http.Request) error {
	found, offset, err := b.found(r, "cursor")
	if err != nil {
		return err
	}
	_, entries, _ := found.Status(offset, logMax)
	return answer(w, http.StatusOK, struct {
		Logs []template.Entry `json:"logs"`
	}{append([]template.Entry{}, entries...)})
}

// found returns the build in the path of a request, and the offset of a log.
func (b *builds) found(r *http.Request, offset string) (*template.Build, int, error) {
	from, err := number(r, offset, 0, 0, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	found, err := b.built.Find(caller(r.Context()), r.PathValue("template"), r.PathValue("build"))
	return found, from, err
}
