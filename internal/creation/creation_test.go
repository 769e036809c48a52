package creation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestResources: the request comes first, the image second, the defaults last; the maximum bounds the image.
func TestResources(t *testing.T) {
	defaults := settings.Defaults
	for name, tt := range map[string]struct {
		asked sandbox.Resources
		image spec.Image
		want  sandbox.Resources
	}{
		"Defaults": {want: defaults},
		"Image": {
			image: spec.Image{MemoryBytes: 600 << 20},
			want:  sandbox.Resources{MemoryBytes: 600 << 20, CPUMilli: defaults.CPUMilli, DiskBytes: defaults.DiskBytes},
		},
		"ImageOverTheMaximum": {
			image: spec.Image{MemoryBytes: 100 << 30},
			want:  sandbox.Resources{MemoryBytes: settings.Max.MemoryBytes, CPUMilli: defaults.CPUMilli, DiskBytes: defaults.DiskBytes},
		},
		"Request": {
			asked: sandbox.Resources{MemoryBytes: 700 << 20, CPUMilli: 500, DiskBytes: 1 << 30}, image: spec.Image{MemoryBytes: 600 << 20},
			want: sandbox.Resources{MemoryBytes: 700 << 20, CPUMilli: 500, DiskBytes: 1 << 30},
		},
	} {
		if d := cmp.Diff(tt.want, settings.Resources(tt.asked, &tt.image)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestMerged: the entries of both maps, and neither map is changed.
func TestMerged(t *testing.T) {
	base, over := map[string]string{"a": "1", "b": "1"}, map[string]string{"b": "2", "c": "2"}
	if d := cmp.Diff(map[string]string{"a": "1", "b": "2", "c": "2"}, creation.Merged(base, over)); d != "" {
		t.Errorf("Merged (-want +got):\n%s", d)
	}
	if base["b"] != "1" || len(over) != 2 {
		t.Errorf("Merged changed its arguments to %v and %v", base, over)
	}
	if got := creation.Merged(nil, over); len(got) != 2 {
		t.Errorf("Merged(nil, %v) = %v", over, got)
	}
}
