package testserver

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/statedir"
)

// installedAge is the age up to which tests use packages of an earlier run. It is shorter than build.packages_max_age, after which servers install
// packages again.
const installedAge = 6 * 24 * time.Hour

// StartInstalled is StartSmall for a test that takes much longer to install packages than for the rest. It keeps the images of its
// server, with the build cache, in the user's cache directory under a name, and later runs begin with them. The
// server decides whether it installs packages again, as for its users.
func StartInstalled(t testing.TB, name string, args ...string) *Server {
	t.Helper()
	skipElsewhere(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(cache, "modbox", "images", "installed-"+name)
	link := func(dir string) { linkSmall(t, dir) }
	if i, err := os.Stat(filepath.Join(kept, "made")); err == nil && time.Since(i.ModTime()) < installedAge && sameBase(t, kept) {
		t.Logf("the server begins with what an earlier run installed, in %s", kept)
		link = func(dir string) { linkImages(t, verifiedImages(t, filepath.Join(kept, statedir.ImagesDir)), dir) }
	}
	stateDir := t.TempDir()
	var s *Server
	t.Cleanup(func() { // runs after the server has stopped, and before its state directory is removed
		if s != nil && !t.Failed() {
			keepInstalled(t, filepath.Join(s.StateDir, statedir.ImagesDir), kept)
		}
	})
	s = start(t, stateDir, link, args...)
	return s
}

// sameBase reports whether modbox/base of a directory of StartInstalled is the built image.
func sameBase(t testing.TB, kept string) bool {
	t.Helper()
	var digests []string
	for _, dir := range []string{filepath.Join(kept, statedir.ImagesDir), imageDir(t)} {
		store, err := image.Open(dir, images.FS, image.Options{})
		if err != nil {
			return false
		}
		img, _, err := store.Resolve(t.Context(), base)
		if err != nil {
			return false
		}
		digests = append(digests, img.Digest)
	}
	return digests[0] == digests[1]
}

// keepInstalled copies an image store that no server uses to the directory kept, unless it has the same root filesystems.
func keepInstalled(t testing.TB, store, kept string) {
	t.Helper()
	names := func(dir string) string {
		found, err := filepath.Glob(filepath.Join(dir, "images", "*.erofs"))
		if err != nil {
			t.Error(err)
		}
		for i, path := range found {
			found[i] = filepath.Base(path)
		}
		return strings.Join(found, " ")
	}
	if names(store) == names(filepath.Join(kept, statedir.ImagesDir)) {
		return
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Error(err)
		return
	}
	made, err := os.MkdirTemp(filepath.Dir(kept), filepath.Base(kept)+".new")
	if err != nil {
		t.Error(err)
		return
	}
	defer os.RemoveAll(made)
	// The store has symbolic links to root filesystems of other stores, which may remove them.
	if out, err := exec.Command("cp", "-aL", "--reflink=auto", store, filepath.Join(made, statedir.ImagesDir)).CombinedOutput(); err != nil {
		t.Errorf("keep what the test installed: %v: %s", err, out)
		return
	}
	if err := os.WriteFile(filepath.Join(made, "made"), nil, 0o644); err != nil {
		t.Error(err)
		return
	}
	// Another clone may do the same.
	if err := os.RemoveAll(kept); err != nil {
		t.Error(err)
	}
	if err := os.Rename(made, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
}
