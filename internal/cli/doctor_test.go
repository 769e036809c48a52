package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
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

// TestDoctorOfAControlServer checks that doctor asks a server whose sandboxes run on workers for nothing that only sandboxes on this machine need.
func TestDoctorOfAControlServer(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	configure := func(settings string) {
		t.Helper()
		if err := os.WriteFile(config, []byte("role: control\nlisten: 127.0.0.1:0\nworker: {listen: 127.0.0.1:0"+settings+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(dir string, code int, options ...string) map[string]doctor.Result {
		t.Helper()
		r := invoke(t, nil, "", append([]string{"doctor", "--json", "--config", config, "--state-dir", dir}, options...)...)
		var results []doctor.Result
		if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || r.code != code {
			t.Fatalf("doctor = %+v: %v, want code %d", r, err, code)
		}
		found := map[string]doctor.Result{}
		for _, r := range results {
			found[r.Name] = r
		}
		for _, name := range []string{"sandbox", "images", "platform", "run directory", "control groups"} {
			if r, ok := found[name]; ok {
				t.Errorf("the result of %s is %+v, want none", name, r)
			}
		}
		return found
	}
	configure("")
	if got := run(filepath.Join(t.TempDir(), "state"), 0)["workers"]; got.Status != doctor.Warn || !strings.Contains(got.Fix, "modbox worker --join") {
		t.Errorf("without a worker: %+v", got)
	}
	dir, st := stateDir(t)
	rows := workerrows.New(st.DB)
	w := worker.Record{Identity: worker.Identity{ID: "worker-A", Key: "ff"}, Name: "a", Status: worker.Draining, MemoryBytes: 4 << 30, SeenAt: time.Now()}
	if err := rows.Save(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if got := run(dir, 0)["workers"]; got.Status != doctor.Warn || !strings.Contains(got.Fix, "undrain") {
		t.Errorf("with a worker that is being drained: %+v", got)
	}
	w.Status = worker.Ready
	if err := rows.Save(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	got := run(dir, 0, "--prove")
	if r := got["workers"]; r.Status != doctor.OK || !strings.Contains(r.Detail, "1 for new sandboxes, with 4.0 GiB") {
		t.Errorf("with a worker: %+v", r)
	}
	if r := got["proof"]; r.Status != doctor.Untried {
		t.Errorf("the proof: %+v, want it untried", r)
	}
	configure(", secret_dir: /does/not/exist")
	if got := run(dir, base.ExitFailure)["workers"]; got.Status != doctor.Fail || !strings.Contains(got.Detail, "/does/not/exist") {
		t.Errorf("without the authority: %+v", got)
	}
}

// TestDoctorOfACluster checks flags and output; package prove has the tests of what is proved.
func TestDoctorOfACluster(t *testing.T) {
	for args, want := range map[string]string{
		"--cluster --prove": "[cluster prove]", "--cluster --state-dir /x": "[cluster state-dir]", "--image x": "--image is for --cluster",
	} {
		if r := invoke(t, nil, "", append([]string{"doctor"}, strings.Fields(args)...)...); r.code != base.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("doctor %s = %+v, want %q", args, r, want)
		}
	}
	s := apitest.New(t)
	r := invoke(t, nil, "", "--url", s.URL, "--token", s.Token, "doctor", "--cluster")
	if r.code != base.ExitFailure || !strings.HasPrefix(r.stdout, "fail    workers          does not hold: the server has no workers") || !strings.Contains(r.stdout, "\nok      nothing left ") {
		t.Errorf("doctor --cluster without workers = %+v", r)
	}
	s, _ = apitest.NewOnWorkers(t, "one", "two")
	r = invoke(t, nil, "", "--url", s.URL, "--token", s.Token, "doctor", "--cluster", "--image", "modbox/none", "--json")
	var results []doctor.Result
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || r.code != base.ExitFailure {
		t.Fatalf("doctor --cluster with an unknown image = %+v: %v", r, err)
	}
	if results[0].Status != doctor.OK || results[1].Name != "create" || results[1].Status != doctor.Fail || results[2].Status != doctor.Untried {
		t.Errorf("doctor --cluster with an unknown image = %+v", results)
	}
}
