package agentuity

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// codeExec has the languages that the named runtimes stand for.
const codeExec = "modbox/code-exec:latest"

// named are the dialect's runtimes, and the images that have what they promise.
var named = []struct{ name, image, description string }{
	{"node:lts", codeExec, "Node.js 22, and what modbox/code-exec has beside it"},
	{"python:3.13", codeExec, "Python 3.13, and what modbox/code-exec has beside it"},
}

// runtime is an image by one of its names.
type runtime struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	image       sandbox.Image
}

// is reports whether sb was made from the runtime.
func (r *runtime) is(sb *sandbox.Sandbox) bool {
	if asked := sb.Labels[labelRuntime]; asked != "" {
		return asked == r.Name
	}
	return sb.Image == r.image.Ref()
}

// available returns the runtimes whose images are built, images by their own
// names first.
func (d *Dialect) available(ctx context.Context) ([]runtime, error) {
	images, err := d.svc.Images(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	var out []runtime
	add := func(name, description string, img sandbox.Image) {
		out = append(out, runtime{ID: runtimeID(img.ID, name), Name: name, Description: description, image: img})
	}
	for _, img := range images {
		if img.Digest != "" {
			add(strings.TrimPrefix(img.Ref(), "modbox/"), img.Description, img)
		}
	}
	for _, n := range named {
		if i := slices.IndexFunc(images, func(img sandbox.Image) bool { return img.Ref() == n.image && img.Digest != "" }); i >= 0 {
			add(n.name, n.description, images[i])
		}
	}
	return out, nil
}

// runtimeFor returns the runtime that a request names by id or name, without
// either that of the server's default image; nil when that has none.
func (d *Dialect) runtimeFor(ctx context.Context, id, name string) (*runtime, error) {
	list, err := d.available(ctx)
	if err != nil {
		return nil, err
	}
	if id == "" && name == "" {
		if i := slices.IndexFunc(list, func(rt runtime) bool { return rt.image.IsDefault }); i >= 0 {
			return &list[i], nil
		}
		return nil, nil
	}
	for i, rt := range list {
		if id == rt.ID || id == "" && (name == rt.Name || name+":latest" == rt.Name || name == rt.image.Ref()) {
			return &list[i], nil
		}
	}
	names := make([]string, len(list))
	for i, rt := range list {
		names[i] = rt.Name
	}
	if id != "" {
		return nil, sandbox.InvalidField("runtimeId", "there is no such runtime; there are %s", strings.Join(names, ", "))
	}
	return nil, sandbox.InvalidField("runtime", "there is no such runtime; there are %s", strings.Join(names, ", "))
}

func (d *Dialect) runtimes(w http.ResponseWriter, r *http.Request) error {
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
	list, err := d.available(r.Context())
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b runtime) int {
		order := cmp.Compare(a.Name, b.Name)
		if r.URL.Query().Get("sort") == "created" {
			order = a.image.CreatedAt.Compare(b.image.CreatedAt)
		}
		if desc {
			return -order
		}
		return order
	})
	return answer(w, struct {
		Runtimes []runtime `json:"runtimes"`
		Total    int       `json:"total"`
	}{page(list, offset, limit), len(list)})
}

// page returns a part of a list, never nil.
func page[T any](list []T, offset, limit int) []T {
	offset = min(offset, len(list))
	return append([]T{}, list[offset:min(offset+limit, len(list))]...)
}
