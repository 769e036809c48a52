package catalogue_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// images knows every reference; the image big has defaults of its own.
type images struct{}

func (images) List(context.Context) ([]spec.Image, error) {
	return []spec.Image{{ID: "server default", Name: "base", Tag: "v1", IsDefault: true}}, nil
}

func (images) LookupFor(_ context.Context, _ sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img := spec.Image{Name: "ghcr.io/org/app"}
	if strings.Contains(ref, "big") {
		img.MemoryBytes, img.ReadinessPort, img.TTL = 16<<30, 3000, sandbox.TTLMin
	}
	return img, nil
}

func (images) Lookup(_ context.Context, ref string) (spec.Image, error) {
	if ref == "unknown" {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no image %q", ref)
	}
	name, tag, tagged := strings.Cut(ref, ":")
	if !tagged {
		tag = "v1"
	}
	if name == "afar" {
		return spec.Image{ID: "afar", Name: name, Tag: tag, Builtin: true}, nil
	}
	return spec.Image{ID: "of all", Name: name, Tag: tag, MemoryBytes: 1 << 30}, nil
}

func (images) Built(_ context.Context, _ sandbox.WorkspaceID, ref string) (spec.Image, error) {
	if ref != "own" {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "nothing is built")
	}
	return spec.Image{ID: "built", Name: ref, Tag: "v1"}, nil
}

func (images) ByID(_ context.Context, id sandbox.ImageID) (spec.Image, error) {
	switch id {
	case "afar", "near":
		return spec.Image{ID: id, Name: string(id), Tag: "v1", Builtin: true}, nil
	case "here":
		return spec.Image{ID: "afar", Name: "afar", Tag: "v1", Digest: "sha256:2", Builtin: true}, nil
	case "seen":
		return spec.Image{ID: id, Name: "seen", Tag: "v1"}, nil
	case "private":
		return spec.Image{ID: id, Name: "private", Readers: []sandbox.WorkspaceID{"another"}}, nil
	}
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no image %s", id)
}

func (images) Runtimes(context.Context) ([]spec.Runtime, error) {
	return []spec.Runtime{{ID: "near"}, {ID: "afar", Source: "team/afar:v1", Missing: "no registry is set"}}, nil
}

func newCatalogue(t *testing.T) (*catalogue.Catalogue, catalogue.Caller) {
	t.Helper()
	st := storetest.Open(t, filepath.Join(t.TempDir(), "modbox.db"))
	ws, user, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return catalogue.New(st.Catalogue, st.Registries, images{}, 512<<20), catalogue.Caller{User: user, Workspace: ws}
}

func TestReferences(t *testing.T) {
	c, who := newCatalogue(t)
	digest := "@sha256:" + strings.Repeat("a", 64)
	tag := func(s string) *string { return &s }
	for _, tt := range []struct {
		name       string
		image, tag *string
		want       string // image and tag, or the invalid field
	}{
		{"bare", tag("ghcr.io/org/app"), nil, "ghcr.io/org/app latest"},
		{"tag_beside", tag("ghcr.io/org/app"), tag("v1"), "ghcr.io/org/app v1"},
		{"tag_inside", tag("ghcr.io/org/app:v1"), nil, "ghcr.io/org/app v1"},
		{"tag_twice", tag("ghcr.io/org/app:v1"), tag("v1"), "ghcr.io/org/app v1"},
		{"two_tags", tag("ghcr.io/org/app:v1"), tag("v2"), "tag"},
		{"empty_tag", tag("ghcr.io/org/app"), tag(""), "ghcr.io/org/app latest"},
		{"port", tag("localhost:5000/app"), nil, "localhost:5000/app latest"},
		{"port_and_tag", tag("localhost:5000/app:v1"), nil, "localhost:5000/app v1"},
		{"digest", tag("ghcr.io/org/app" + digest), nil, "ghcr.io/org/app" + digest + " "},
		{"tag_and_digest", tag("ghcr.io/org/app" + digest), tag("v1"), "tag"},
		{"bare_digest", tag(digest[1:]), nil, "image"},
		{"no_digest", tag("ghcr.io/org/app@v1"), nil, "image"},
		{"upper_case", tag("ghcr.io/Org/app"), nil, "image"},
		{"long", tag("ghcr.io/" + strings.Repeat("a", 500)), tag("v1234567"), "image"},
		{"long_tag", tag("ghcr.io/org/app"), tag(strings.Repeat("a", 129)), "tag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := c.Create(t.Context(), who, catalogue.Fields{Name: &tt.name, Image: tt.image, Tag: tt.tag})
			got := e.Image + " " + e.Tag
			if invalid, ok := err.(*sandbox.Error); ok && invalid.Code == sandbox.Invalid {
				got = invalid.Field
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("Create(%q) = %q, %v, want %q", *tt.image, got, err, tt.want)
			}
		})
	}
}

// TestReferencesChange checks that omitted fields do not change, and that a tag follows its image.
func TestReferencesChange(t *testing.T) {
	c, who := newCatalogue(t)
	name, image, other, tag := "app", "ghcr.io/org/app:v1", "ghcr.io/org/other", "v2"
	digest, empty, bad := "ghcr.io/org/app@sha256:"+strings.Repeat("b", 64), "", "a b"
	e, err := c.Create(t.Context(), who, catalogue.Fields{Name: &name, Image: &image})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		f    catalogue.Fields
		want string
	}{
		{catalogue.Fields{Image: &other}, "ghcr.io/org/other:v1"},
		{catalogue.Fields{Tag: &tag}, "ghcr.io/org/other:v2"},
		{catalogue.Fields{Image: &digest}, digest},
		{catalogue.Fields{Tag: &empty}, digest},
		{catalogue.Fields{Image: &other}, "ghcr.io/org/other:latest"},
		{catalogue.Fields{Name: &tag}, "ghcr.io/org/other:latest"},
	} {
		if e, err = c.Update(t.Context(), who, e.ID, step.f); err != nil || e.Ref() != step.want {
			t.Fatalf("Update = %q, %v, want %q", e.Ref(), err, step.want)
		}
	}
	if _, err := c.Update(t.Context(), who, e.ID, catalogue.Fields{Tag: &bad}); !strings.HasPrefix(err.Error(), "change catalogue image "+string(e.ID)+": tag:") {
		t.Errorf("a bad tag: %v", err)
	}
}

// TestImagesOwnDefaults checks that omitted fields have the image's values, within the limits.
func TestImagesOwnDefaults(t *testing.T) {
	c, who := newCatalogue(t)
	name, image, zero, memory := "big", "ghcr.io/org/big", int64(0), int64(300)
	e, err := c.Create(t.Context(), who, catalogue.Fields{Name: &name, Image: &image})
	if err != nil || e.MemoryBytes != catalogue.MemoryMax || e.ReadinessPort != 3000 || e.TTL != sandbox.TTLMin {
		t.Errorf("Create = %+v, %v", e, err)
	}
	e, err = c.Update(t.Context(), who, e.ID, catalogue.Fields{ReadinessPort: &zero, TTLSeconds: &zero, MemoryMB: &memory})
	if err != nil || e.MemoryBytes != 300<<20 || e.ReadinessPort != 0 || e.TTL != 0 {
		t.Errorf("Update = %+v, %v", e, err)
	}
	if e, err = c.Update(t.Context(), who, e.ID, catalogue.Fields{MemoryMB: &zero}); err != nil || e.MemoryBytes != catalogue.MemoryMax {
		t.Errorf("Update back to the image's own = %+v, %v", e, err)
	}
}
