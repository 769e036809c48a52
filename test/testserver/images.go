package testserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
)

// The built images of the tests.
const (
	base     = "modbox/base"
	standard = "modbox/code-exec" // the default image
)

// verifying is held while a test reads images.
var verifying sync.Mutex

// linkBuilt makes an image store with the built images.
func linkBuilt(t testing.TB, dir string) {
	t.Helper()
	linkImages(t, verifiedImages(t, imageDir(t)), dir)
}

// linkSmall is linkBuilt for [StartSmall].
func linkSmall(t testing.TB, dir string) {
	t.Helper()
	linkBuilt(t, dir)
	shrinkDefaultImage(t, dir)
}

// verifiedImages returns an image store, with records that its images are undamaged:
// no server of a test reads them. A hard link to an image, which other clones make, ends its record, so that
// it is read again here, once for all tests that follow. A directory without images is returned unchanged.
func verifiedImages(t testing.TB, dir string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "images")); errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	verifying.Lock()
	defer verifying.Unlock()
	store, err := image.Open(dir, images.FS, image.Options{})
	if err == nil {
		err = store.Verifier().All(t.Context())
	}
	if err != nil {
		t.Errorf("the built images: %v", err)
	}
	return dir
}

// shrinkDefaultImage changes an image store, which no server uses yet: the name of the default image
// means the root filesystem of modbox/base.
func shrinkDefaultImage(t testing.TB, dir string) {
	t.Helper()
	files := filepath.Join(dir, "images")
	layout, err := archive.OpenLayout(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	table, err := index.Open(t.Context(), index.Options{Dir: dir, Lock: filepath.Join(dir, "locks", "index.lock"), Images: files, Layout: layout})
	if err != nil {
		t.Fatal(err)
	}
	ix, unlock, err := table.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	small, large := ix.Current(base+":latest"), ix.Current(standard+":latest")
	if small == nil || large == nil {
		t.Fatalf("the images %s and %s are not both built", base, standard)
	}
	file := filepath.Join(files, strings.TrimPrefix(large.Digest, "sha256:")+".erofs")
	record := *small
	record.Name = standard
	ix = ix.Keep(func(r *index.Record) bool { return r.Name == base })
	ix.Add(record)
	if err := table.Write(ix); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
