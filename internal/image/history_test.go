package image_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestLayersOfAnImage: each step has its instruction, and the layers of another image below are its base.
func TestLayersOfAnImage(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	step := func(base, name, by string, entries ...entry) spec.Image {
		t.Helper()
		done, err := s.Commit(t.Context(), image.CommitRequest{Base: base, Name: name, CreatedBy: by, Layer: bytes.NewReader(tarball(t, entries...))})
		if err != nil {
			t.Fatal(err)
		}
		return done.Image
	}
	other := step("", "other", "COPY x", file("x", "x", 0o644))
	bottom := step("", "bottom", "COPY a", file("a", "a", 0o644))
	middle := step(bottom.Digest, "middle", "RUN  a\n\tb\x1b[0m", file("b", "b", 0o644))
	top := step(middle.Digest, "top", "", file("c", "c", 0o644))
	all := []spec.Image{other, bottom, middle, top, {Name: "unbuilt"}}
	for _, c := range []struct {
		img  spec.Image
		base string
		want []string
	}{
		{top, "middle", []string{"COPY a base", "RUN a b [0m base", "modbox commit"}},
		{middle, "bottom", []string{"COPY a base", "RUN a b [0m"}},
		{bottom, "", []string{"COPY a"}},
		{spec.Image{Name: "unbuilt"}, "", nil},
	} {
		layers, base, err := s.Layers(c.img, all)
		if err != nil {
			t.Fatal(err)
		}
		if base == nil {
			base = &spec.Image{}
		}
		var got []string
		digests := map[string]bool{}
		for _, l := range layers {
			by := l.CreatedBy
			if l.Base {
				by += " base"
			}
			got = append(got, by)
			digests[l.Digest] = l.SizeBytes > 0
		}
		if d := cmp.Diff(c.want, got); d != "" || base.Name != c.base || len(digests) != len(layers) || digests[""] {
			t.Errorf("layers of %q over %q, want over %q (-want +got):\n%s%+v", c.img.Name, base.Name, c.base, d, layers)
		}
	}
	_, _, err := s.Layers(spec.Image{Name: "gone", Digest: "sha256:00"}, all)
	wantCode(t, "Layers of an image that was removed", err, sandbox.NotFound)
}

// TestLayersOfImagesWithTheSameFiles: the instructions of an image are its own, also if there is an image with the
// same files, which may belong to another workspace.
func TestLayersOfImagesWithTheSameFiles(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	layer := tarball(t, file("a", "a", 0o644))
	var images []spec.Image
	instruction := func(owner sandbox.WorkspaceID) string { return "COPY of " + string(owner) }
	owners := []sandbox.WorkspaceID{"me", "they", ""}
	for _, owner := range owners {
		done, err := s.Commit(t.Context(), image.CommitRequest{Owner: owner, Name: "app", CreatedBy: instruction(owner), Layer: bytes.NewReader(layer)})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, done.Image)
	}
	for i, owner := range owners {
		if images[i].Digest != images[0].Digest {
			t.Fatalf("the images of %q and %q have the digests %s and %s", owners[0], owner, images[0].Digest, images[i].Digest)
		}
		layers, base, err := s.Layers(images[i], images)
		if err != nil {
			t.Fatal(err)
		}
		if len(layers) != 1 || layers[0].CreatedBy != strings.TrimSpace(instruction(owner)) || base != nil {
			t.Errorf("layers of the image of %q over %+v: %+v", owner, base, layers)
		}
	}
	if _, _, err := s.Layers(spec.Image{ID: "other", Name: "app", Digest: images[0].Digest}, nil); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("layers of an image that is not in the store: %v", err)
	}
}
