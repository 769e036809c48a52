package archive

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/spec"
)

func descriptor(c string) v1.Descriptor {
	return v1.Descriptor{Digest: v1.Hash{Algorithm: "sha256", Hex: c}, Size: 7}
}

// TestHistoryOfAnImage: steps without files have no layer, a history that does not fit is not used, and neither a long nor
// an odd one does harm.
func TestHistoryOfAnImage(t *testing.T) {
	made := v1.Time{Time: time.Unix(1000, 0)}
	layers := []v1.Descriptor{descriptor("a"), descriptor("b")}
	got := layersOf(layers, []v1.History{{CreatedBy: "ADD", Created: made}, {CreatedBy: "ENV", EmptyLayer: true}, {CreatedBy: strings.Repeat("é", 2000)}})
	want := []spec.Layer{
		{Digest: "sha256:a", SizeBytes: 7, CreatedBy: "ADD", CreatedAt: made.UTC()}, {CreatedBy: "ENV"},
		{Digest: "sha256:b", SizeBytes: 7, CreatedBy: strings.Repeat("é", createdByMax-1) + "…"},
	}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("layers = %.200v", got)
	}
	for _, history := range [][]v1.History{nil, {{CreatedBy: "ADD"}}, {{}, {}, {}}} {
		if got := layersOf(layers, history); len(got) != 2 || got[0].CreatedBy != "" || got[1].Digest != "sha256:b" {
			t.Errorf("layers with the history %v = %v", history, got)
		}
	}
	late := v1.Time{Time: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600))} // in UTC, a year that JSON has not
	if got := layersOf(layers[:1], []v1.History{{Created: late}}); len(got) != 1 || !got[0].CreatedAt.IsZero() {
		t.Errorf("a layer with the time %s: %v", late, got)
	}
	many := make([]v1.History, 5*stepsMax)
	for i := range many {
		many[i].EmptyLayer = i > 1
	}
	if got := layersOf(layers, many); len(got) != stepsMax+2 {
		t.Errorf("%d steps of an image that claims %d", len(got), len(many))
	}
}
