package image

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server"
)

func TestDoctorAsksForNoImageThatIsBuiltByItself(t *testing.T) {
	cfg := config.Config{StateDir: t.TempDir()}
	if _, err := server.OpenImages(cfg); err != nil {
		t.Fatal(err)
	}
	got, err := BuiltImages(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"modbox/base:latest": false, "modbox/code-exec:latest": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images to be built (-want +got):\n%s", diff)
	}
}
