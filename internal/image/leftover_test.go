package image_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/sandbox"
)

// filesIn returns the names in a directory that begin so.
func filesIn(t *testing.T, dir, prefix string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Requests for many images leave no lock files.
func TestPullsLeaveNoLocks(t *testing.T) {
	dir := t.TempDir()
	reg, s := registrytest.New(t), pullStore(t, dir)
	locks := filepath.Join(dir, "locks")
	ref := reg.Push(t, "team/app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	missing := reg.Host + "/" + strings.Repeat("a/", 100) + "b:" + strings.Repeat("t", 128)
	for _, tt := range []struct {
		ref  string
		want sandbox.Code
	}{{ref, ""}, {reg.Host + "/team/none:v1", sandbox.NotFound}, {missing, sandbox.NotFound}, {"10.0.0.1:1/a:b", sandbox.Unavailable}} {
		if _, err := s.Pull(t.Context(), tt.ref, image.PullOptions{}); sandbox.CodeOf(err) != tt.want {
			t.Errorf("Pull(%.50s) = %v, want code %q", tt.ref, err, tt.want)
		}
		if left := filesIn(t, locks, "pull-"); left != nil {
			t.Errorf("after Pull(%.50s) there is %q", tt.ref, left)
		}
	}
	if err := os.WriteFile(filepath.Join(locks, "pull-old.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pullStore(t, dir)
	if left := filesIn(t, locks, "pull-"); left != nil {
		t.Errorf("after a start there is %q", left)
	}
}

// The blobs of failed pulls are bounded; the blobs of a pull in progress stay.
func TestFailedPullsFillNoDisk(t *testing.T) {
	dir := t.TempDir()
	reg := registrytest.New(t)
	s, err := image.Open(dir, recipeFS(), image.Options{
		Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, MaxDisk: 8 << 20, InUse: func(context.Context) ([]string, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	pulls := filepath.Join(dir, "pulls")
	for i, name := range []string{"busy.part", "oldest.part", "older", "newest.part"} {
		file := filepath.Join(pulls, name)
		if err := os.WriteFile(file, make([]byte, 300<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-time.Hour + time.Duration(i)*time.Minute)
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
	busy, err := os.Open(filepath.Join(pulls, "busy.part"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := unix.Flock(int(busy.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), reg.Host+"/team/none:v1", image.PullOptions{}); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Pull = %v", err)
	}
	if got := strings.Join(filesIn(t, pulls, ""), " "); got != "busy.part newest.part older" {
		t.Errorf("there are %s", got)
	}
}
