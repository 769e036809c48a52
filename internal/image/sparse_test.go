package image_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/registrytest"
)

// TestPullSparseFiles pulls layers of which GNU tar has written the files' holes, in
// each of its formats.
func TestPullSparseFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "sparse")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size, at = 64 << 20, 40 << 20
	if _, err := f.WriteAt([]byte("in the middle"), at); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	want := make([]byte, size)
	copy(want[at:], "in the middle")
	for _, format := range [][]string{{"--format=gnu"}, {"--format=pax", "--sparse-version=0.0"}, {"--format=pax", "--sparse-version=0.1"}, {"--format=pax", "--sparse-version=1.0"}} {
		layer, err := exec.CommandContext(t.Context(), "tar", append(format, "--sparse", "-C", dir, "-c", "sparse")...).Output()
		if err != nil || len(layer) > 1<<20 {
			t.Fatalf("tar %v = %d bytes, %v; want the holes left out", format, len(layer), err)
		}
		_, files := pull(t, s, reg.Push(t, "sparse", imageOf(t, v1.Config{}, plainLayer(t, layer))))
		if got := contents(t, files)["sparse"]; got != string(want) {
			t.Errorf("of a layer made with %v there are %d bytes, which are not those of the file", format, len(got))
		}
	}
}
