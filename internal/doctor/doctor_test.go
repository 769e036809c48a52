package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseRelease(t *testing.T) {
	for release, want := range map[string][2]int{
		"6.1.0-18-amd64": {6, 1}, "5.15.167.4-microsoft-standard-WSL2": {5, 15}, "6.18": {6, 18}, "4.19+": {4, 19},
	} {
		major, minor, err := parseRelease(release)
		if err != nil || [2]int{major, minor} != want {
			t.Errorf("parseRelease(%q) = %d, %d, %v, want %v", release, major, minor, err, want)
		}
	}
	for _, release := range []string{"", "linux", "6", "6.x"} {
		if _, _, err := parseRelease(release); err == nil {
			t.Errorf("parseRelease(%q) succeeded", release)
		}
	}
}

func TestDirectoriesLookAtTheNearestParent(t *testing.T) {
	dir := t.TempDir()
	o := Options{StateDir: filepath.Join(dir, "not", "there"), RunDir: filepath.Join(dir, "run")}
	if r := stateDir(t.Context(), o); !strings.Contains(r.Detail, o.StateDir) || !strings.Contains(r.Detail, "free") {
		t.Errorf("state directory: %+v, want its free space", r)
	}
	if r := runDir(t.Context(), o); r.Status == Fail {
		t.Errorf("run directory: %+v", r)
	}
	if os.Geteuid() != 0 { // root may write everywhere
		if r := stateDir(t.Context(), Options{StateDir: "/proc/none"}); r.Status != Fail {
			t.Errorf("state directory that cannot be written: %+v", r)
		}
	}
}

func TestPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := port(t.Context(), Options{Listen: addr}); r.Status != OK || !strings.Contains(r.Detail, "free") {
		t.Errorf("free port: %+v", r)
	}
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // answers like a server of ours
	defer stranger.Close()
	addr = stranger.Listener.Addr().String()
	_, portText, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for running, want := range map[string]Status{"": Fail, "127.0.0.1:1": Fail, addr: OK, "[::]:" + portText: OK} {
		if r := port(t.Context(), Options{Listen: addr, Running: running}); r.Status != want {
			t.Errorf("port in use, and the server listens on %q: %+v, want %s", running, r, want)
		}
	}
}

func TestStateDirectoryThatIsOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := stateDir(t.Context(), Options{StateDir: dir}); r.Status != Warn || !strings.Contains(r.Fix, "chmod 700") {
		t.Errorf("a state directory that others can enter: %+v", r)
	}
}

func TestSubordinateUsers(t *testing.T) {
	with, without := filepath.Join(t.TempDir(), "subuid"), filepath.Join(t.TempDir(), "subgid")
	if err := os.WriteFile(with, fmt.Appendf(nil, "other:1:1\n%d:100000:65536\n", os.Geteuid()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(without, []byte("other:1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := withoutSubordinates(with, without); got != without {
		t.Errorf("file without an entry = %q, want %q", got, without)
	}
	if got := withoutSubordinates(with); got != "" {
		t.Errorf("file without an entry = %q, want none", got)
	}
}

func TestImages(t *testing.T) {
	for name, tc := range map[string]struct {
		built map[string]bool
		err   error
		want  Status
	}{
		"all":   {built: map[string]bool{"a": true, "b": true}, want: OK},
		"some":  {built: map[string]bool{"a": true, "b": false}, want: Warn},
		"none":  {built: map[string]bool{"a": false}, want: Fail},
		"error": {err: errors.New("broken index"), want: Fail},
	} {
		t.Run(name, func(t *testing.T) {
			r := images(t.Context(), Options{Images: func(context.Context) (map[string]bool, error) { return tc.built, tc.err }})
			if r.Status != tc.want || r.Status != OK && tc.err == nil && r.Fix == "" {
				t.Errorf("images = %+v, want %s with a fix", r, tc.want)
			}
		})
	}
}

func TestRunMakesAllChecks(t *testing.T) {
	dir := t.TempDir()
	var seen []string
	results := Run(t.Context(), Options{
		StateDir: dir, RunDir: dir, Listen: "127.0.0.1:0", Capacity: func() (string, error) { return "enough", nil },
		FirstToken: func(context.Context) (*FirstToken, error) { return nil, nil },
		Quarantine: func(context.Context) (string, error) { return "", nil },
		Images:     func(context.Context) (map[string]bool, error) { return map[string]bool{"a": true}, nil },
		Platform:   func() (string, string, error) { return "systrap", "", nil },
		Sandbox: func(context.Context) (Trial, error) {
			return Trial{Start: 50 * time.Millisecond, Missing: []string{"CPU limits are not enforced."}}, nil
		},
	}, func(r Result) { seen = append(seen, r.Name) })
	want := []string{"architecture", "kernel", "user namespaces", "control groups", "memory", "state directory", "database", "quarantine", "backups", "first token", "capacity",
		"run directory", "open files", "port", "sandbox URLs", "image tools", "images", "platform", "sandbox"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	last := results[len(results)-1]
	if last.Status != Warn || !strings.Contains(last.Detail, "50 ms") || !strings.Contains(last.Fix, "CPU") {
		t.Errorf("sandbox = %+v, want a warning with the time and what is missing", last)
	}
}

func TestPlatform(t *testing.T) {
	for name, tc := range map[string]struct {
		fix  string
		err  error
		want Status
	}{
		"as set": {want: OK}, "fell back": {fix: "set it", want: Warn}, "error": {err: errors.New("no kvm"), want: Fail},
	} {
		r := platform(t.Context(), Options{Platform: func() (string, string, error) { return "systrap", tc.fix, tc.err }})
		if r.Status != tc.want || r.Fix == "" && r.Status != OK || tc.err != nil && !strings.Contains(r.Detail, "no kvm") {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

func TestSandboxThatDoesNotStartFails(t *testing.T) {
	r := trySandbox(t.Context(), Options{Sandbox: func(context.Context) (Trial, error) { return Trial{}, errors.New("no luck") }})
	if r.Status != Fail || !Failed([]Result{r}) || !strings.Contains(r.Detail, "no luck") {
		t.Errorf("sandbox = %+v, want a failure with its reason", r)
	}
}
