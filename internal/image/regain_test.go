package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/stack"
)

// TestLayersRegainTheirBase checks that a base stays after a program that knows no layers has written the
// records.
func TestLayersRegainTheirBase(t *testing.T) {
	l := newLosing(t, 0, 0)
	base := commit(t, l.Store, "", file("a", "a", 0o644))
	over := commitAlone(t, l.Store, base.Digest, file("b", "b", 0o644))
	list := regexp.MustCompile(`"below": \[[^]]*\],?`)
	if !editIndex(t, l.dir, func(index []byte) []byte { return list.ReplaceAll(index, nil) }) {
		t.Fatal("no record lists what lies below")
	}
	open := func() (*image.Store, error) {
		return image.Open(l.dir, recipeFS(), image.Options{
			InUse:    func(context.Context) ([]string, error) { return l.needed, nil },
			Released: func(context.Context) ([]string, error) { return l.dropped, nil },
		})
	}
	// A file that cannot be read now, here because its name leads in a circle, may have a base.
	name := filepath.Join(l.dir, "images", stack.FileName(over.Digest))
	if err := errors.Join(os.Rename(name, name+".away"), os.Symlink(name, name)); err != nil {
		t.Fatal(err)
	}
	if s, err := open(); err == nil {
		if _, _, err := s.Resolve(t.Context(), base.Digest); err == nil {
			t.Error("the images are used although a file with a list cannot be read")
		}
	}
	if err := errors.Join(os.Remove(name), os.Rename(name+".away", name)); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.Store, err = open(); err != nil {
		t.Fatal(err)
	}
	l.needed, l.dropped = []string{over.Digest}, []string{base.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles(base.Digest, over.Digest)
}
