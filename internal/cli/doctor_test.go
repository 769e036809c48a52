package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/doctor"
)

func TestDoctorMakesNothingWhereNoServerWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	r := invoke(t, nil, "", "doctor", "--json", "--state-dir", dir)
	var results []doctor.Result
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || r.code != base.ExitFailure {
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
