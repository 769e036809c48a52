package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/server"
)

func TestDoctorMakesNothingWhereNoServerWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	r := invoke(t, nil, "", "doctor", "--json", "--state-dir", dir)
	var results []doctor.Result
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || r.code != exitError {
		t.Fatalf("doctor = %+v: %v", r, err)
	}
	failed := map[string]bool{}
	for _, r := range results {
		failed[r.Name] = r.Status == doctor.Fail
	}
	if !failed["images"] || !failed["sandbox"] {
		t.Errorf("doctor where nothing is built = %+v", results)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory after doctor: %v, want none", err)
	}
}

func TestDoctorAsksForNoImageThatIsBuiltByItself(t *testing.T) {
	cfg := config.Config{StateDir: t.TempDir()}
	if _, err := server.OpenImages(cfg); err != nil {
		t.Fatal(err)
	}
	got, err := builtImages(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"modbox/base:latest": false, "modbox/code-exec:latest": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images to be built (-want +got):\n%s", diff)
	}
}
