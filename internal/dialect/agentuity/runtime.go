package agentuity

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// runtimes has the runtimes of the workspace's catalogue, and the handler that lists them.
type runtimes struct{ catalogue *catalogue.Catalogue }

func (h *runtimes) register(m routes) { m.add("GET /sandbox/runtimes", byCode, h.list) }

// runtime is a runtime in the form of the dialect.
type runtime struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Description  string       `json:"description,omitempty"`
	IconURL      string       `json:"iconUrl,omitempty"`
	BrandColor   string       `json:"brandColor,omitempty"`
	URL          string       `json:"url,omitempty"`
	Tags         []string     `json:"tags,omitempty"`
	Requirements requirements `json:"requirements"`
	Readme       string       `json:"readme,omitempty"`
	image        string       // its reference
	created      time.Time
}

// requirements are the minimum resources of a sandbox for a runtime.
type requirements struct {
	resources
	NetworkEnabled bool `json:"networkEnabled"`
}

func runtimeOf(rt *spec.Runtime) runtime {
	return runtime{
		ID: external(prefixRuntime, rt.ID), Name: rt.Name, Description: described(rt),
		IconURL: rt.IconURL, BrandColor: rt.Color, URL: rt.URL, Tags: rt.Tags, Readme: rt.Readme,
		Requirements: requirements{resources: resourcesOf(rt.Requires), NetworkEnabled: rt.NeedsNetwork},
		image:        rt.Image, created: rt.CreatedAt,
	}
}

// described returns the description of a runtime, with its registry and the parts missing for its use,
// because the clients have no fields for them.
func described(rt *spec.Runtime) string {
	switch {
	case rt.Missing != "":
		return rt.Description + "; not available: " + rt.Missing
	case rt.Source != "" && rt.Digest == "":
		return rt.Description + "; its first use pulls " + rt.Source
	}
	return rt.Description
}

// standardName is the name of the runtime of a request without one. The examples of the product's documentation run
// Python in it, which modbox/base does not have, so here it is the server's default image.
const standardName = "base:latest"

// available returns all runtimes, built or not, the standard runtime first.
func (h *runtimes) available(ctx context.Context) ([]runtime, error) {
	list, err := h.catalogue.Runtimes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]runtime, len(list))
	for i := range list {
		out[i] = runtimeOf(&list[i])
		switch {
		case i == 0: // the server's default image
			out[i].Name = standardName
		case out[i].Name == standardName:
			out[i].Name = out[i].image
		}
	}
	return out, nil
}

// ofImage returns the runtime that an image reference belongs to; nil for none.
func ofImage(list []runtime, image string) *runtime {
	if i := slices.IndexFunc(list, func(rt runtime) bool { return rt.image == image }); i >= 0 {
		return &list[i]
	}
	return nil
}

// choose returns the runtime that a request names by ID or name, by default the default image of the workspace's
// catalogue, else the standard runtime. A name that is not a runtime's is an image reference, which a registry may have.
func (h *runtimes) choose(ctx context.Context, id, name string) (*runtime, error) {
	list, err := h.available(ctx)
	if err != nil {
		return nil, err
	}
	if id == "" && name == "" {
		return h.standard(ctx, list)
	}
	for i, rt := range list {
		if id == rt.ID || id == "" && (name == rt.Name || name+":latest" == rt.Name || name == rt.image) {
			return &list[i], nil
		}
	}
	if id != "" {
		return h.imageWithID(ctx, list, id)
	}
	return h.named(ctx, list, name)
}

// named returns the runtime of an image by its reference.
func (h *runtimes) named(ctx context.Context, list []runtime, name string) (*runtime, error) {
	img, err := h.catalogue.Image(ctx, caller(ctx).Workspace, name)
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.NotFound:
		return nil, sandbox.InvalidField("runtime", "there is no such runtime, and this server asks no registry for a name without one; there are %s", names(list))
	case code == sandbox.Invalid:
		return nil, sandbox.InvalidField("runtime", "it is neither a runtime nor an image reference such as python:3.15 or registry.example.com/team/app:v1; there are %s", names(list))
	case err != nil:
		return nil, err
	}
	if rt := ofImage(list, img.Ref()); rt != nil { // a short form of its reference, such as code-exec
		return rt, nil
	}
	rt := runtimeOfImage(&img)
	rt.image = name
	return &rt, nil
}

// imageWithID returns the runtime with an ID that is not a runtime of the server: a pulled image,
// whose ID an earlier answer contained.
func (h *runtimes) imageWithID(ctx context.Context, list []runtime, id string) (*runtime, error) {
	images, err := h.catalogue.Images(ctx, caller(ctx).Workspace)
	if err != nil {
		return nil, err
	}
	for i := range images {
		if rt := runtimeOfImage(&images[i]); rt.ID == id {
			return &rt, nil
		}
	}
	return nil, sandbox.InvalidField("runtimeId", "there is no such runtime; there are %s", names(list))
}

// runtimeOfImage describes an image that is not a runtime of the server like a runtime. Its name is
// the familiar form of the reference, such as python:3.15.
func runtimeOfImage(img *spec.Image) runtime {
	name := strings.TrimPrefix(strings.TrimPrefix(img.Ref(), "docker.io/"), "library/")
	return runtime{
		ID: external(prefixRuntime, img.ID), Name: name, Description: img.Description,
		image: img.Ref(), created: img.CreatedAt,
	}
}

// names returns the names of runtimes, for an error.
func names(list []runtime) string {
	out := make([]string, len(list))
	for i, rt := range list {
		out[i] = rt.Name
	}
	return strings.Join(out, ", ")
}

// standard returns the runtime of a request without one.
func (h *runtimes) standard(ctx context.Context, list []runtime) (*runtime, error) {
	entries, err := h.catalogue.List(ctx, caller(ctx).Workspace, false)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		if !e.IsDefault {
			continue
		}
		rt, err := h.named(ctx, list, e.Ref())
		if sandbox.CodeOf(err) == sandbox.Invalid { // an image that the workspace has built, or that is gone; the create tells
			return &runtime{ID: external(prefixRuntime, e.ID), Name: e.Ref(), image: e.Ref()}, nil
		}
		return rt, err
	}
	return &list[0], nil
}

func (h *runtimes) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 50, 1, 100)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	desc, err := descending(r, false)
	if err != nil {
		return err
	}
	list, err := h.available(r.Context())
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b runtime) int {
		order := cmp.Compare(a.Name, b.Name)
		if r.URL.Query().Get("sort") == "created" {
			order = a.created.Compare(b.created)
		}
		if desc {
			return -order
		}
		return order
	})
	return answer(w, struct {
		Runtimes []runtime `json:"runtimes"`
		Total    int       `json:"total"`
	}{part(list, offset, limit), len(list)})
}

// part returns a part of a list, never nil.
func part[T any](list []T, offset, limit int) []T {
	offset = min(offset, len(list))
	return append([]T{}, list[offset:min(offset+limit, len(list))]...)
}
