package image_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/sandbox"
)

// pullLayers pulls an image of the layers.
func pullLayers(t *testing.T, layers ...[]entry) (files fs.FS, err error) {
	t.Helper()
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	var made []v1.Layer
	for _, l := range layers {
		made = append(made, gzipped(t, l...))
	}
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, made...))
	if _, err := s.Pull(t.Context(), ref, image.PullOptions{}); err != nil {
		return nil, err
	}
	_, path, err := s.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return readEROFS(t, path), nil
}

// TestPullThroughLinks: what a layer has under a symbolic link is where the link
// leads inside the image, as in images that other tools made.
func TestPullThroughLinks(t *testing.T) {
	sym := func(name, target string) entry { return link('2', name, target) }
	for name, c := range map[string]struct {
		layers [][]entry
		want   map[string]string // of what is not a symbolic link
	}{
		"merged_usr": {[][]entry{
			{dir("usr/lib", 0o755), file("usr/lib/a", "a", 0o644), sym("lib", "usr/lib")}, {file("lib/b", "b", 0o644), dir("lib/c", 0o755)},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a", "usr/lib/b": "b", "usr/lib/c": "/"}},
		"same_layer": {[][]entry{{sym("lib", "usr/lib"), file("lib/a", "a", 0o644)}}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a"}},
		"absolute":   {[][]entry{{sym("lib", "/usr/lib"), file("opt/x", "x", 0o644), sym("opt/l", "/lib")}, {file("opt/l/a", "a", 0o644)}}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a", "opt": "/", "opt/x": "x"}},
		"above":      {[][]entry{{sym("a/b/up", "../../../../.."), dir("etc", 0o755)}, {file("a/b/up/etc/x", "x", 0o644)}}, map[string]string{"a": "/", "a/b": "/", "etc": "/", "etc/x": "x"}},
		"the_root":   {[][]entry{{sym("host", "/")}, {file("host/x", "x", 0o644), file("host/host/y", "y", 0o644)}}, map[string]string{"x": "x", "y": "y"}},
		"back":       {[][]entry{{sym("s", "d/e"), dir("d/e", 0o755), sym("t", "s/..")}, {file("t/x", "x", 0o644)}}, map[string]string{"d": "/", "d/e": "/", "d/x": "x"}},
		"directory_instead": {[][]entry{
			{sym("lib", "usr/lib"), file("usr/lib/a", "a", 0o644)}, {dir("lib", 0o755), file("lib/b", "b", 0o644)},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a", "lib": "/", "lib/b": "b"}},
		"hard_link": {[][]entry{
			{sym("lib", "usr/lib"), file("usr/lib/a", "a", 0o644)}, {link(tarLink, "lib/b", "lib/a")},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a", "usr/lib/b": "a"}},
		"gone": {[][]entry{
			{sym("lib", "usr/lib"), file("usr/lib/a", "a", 0o644), file("usr/lib/b", "b", 0o644)}, {file("lib/.wh.a", "", 0)},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/b": "b"}},
		"opaque": {[][]entry{
			{sym("lib", "usr/lib"), file("usr/lib/a", "a", 0o644)}, {file("lib/b", "b", 0o644), file("lib/.wh..wh..opq", "", 0)},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/b": "b"}},
		"gone_link": {[][]entry{
			{sym("lib", "usr/lib"), file("usr/lib/a", "a", 0o644)}, {file(".wh.lib", "", 0), file("lib/b", "b", 0o644)},
		}, map[string]string{"usr": "/", "usr/lib": "/", "usr/lib/a": "a", "lib": "/", "lib/b": "b"}},
		"absolute_names": {[][]entry{{dir("/", 0o755), file("/etc/a", "a", 0o644), link(tarLink, "/etc/b", "/etc/a")}}, map[string]string{"etc": "/", "etc/a": "a", "etc/b": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := pullLayers(t, c.layers...)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name, content := range contents(t, files) {
				if stat(t, files, name).Mode&fs.ModeSymlink == 0 {
					got[name] = content
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
		})
	}
}

func TestPullRefusesLinks(t *testing.T) {
	sym := func(name, target string) entry { return link('2', name, target) }
	var chain []entry
	for i := range 41 {
		chain = append(chain, sym(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i+1)))
	}
	far := strings.Repeat("d/", 1500)
	for name, entries := range map[string][]entry{
		"loop":          {sym("a", "a"), file("a/x", "x", 0o644)},
		"loop_of_two":   {sym("a", "b/."), sym("b", "/a"), file("a/x", "x", 0o644)},
		"chain":         append(chain, file("l0/x", "x", 0o644)),
		"many_steps":    {sym("a", strings.Repeat("./", 1800)), sym("b", "a/"+strings.Repeat("./", 1800)), sym("c", "b/"+strings.Repeat("./", 1800)), file("c/x", "x", 0o644)},
		"deep":          {sym("a", far), sym("b", "a/"+far), file("b/x", "x", 0o644)},
		"to_a_file":     {file("f", "f", 0o644), sym("a", "f"), file("a/x", "x", 0o644)},
		"hard_link":     {sym("a", "a"), file("f", "f", 0o644), link(tarLink, "g", "a/f")},
		"gone":          {sym("a", "a"), file("a/.wh.f", "", 0)},
		"opaque":        {sym("a", "a"), file("a/.wh..wh..opq", "", 0)},
		"symlinks_dots": {sym("a", "."), file("a/../../x", "x", 0o644)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pullLayers(t, entries)
			wantCode(t, "Pull", err, sandbox.Invalid)
		})
	}
}
