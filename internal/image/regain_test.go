package image_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/modbox/modbox/internal/image"
)

// TestLayersRegainTheirBase checks that a base stays after a program that knows no layers has written the
// records.
func TestLayersRegainTheirBase(t *testing.T) {
	l := newLosing(t, 0, 0)
	base := commit(t, l.Store, "", file("a", "a", 0o644))
	over := commitAlone(t, l.Store, base.Digest, true, file("b", "b", 0o644))
	list := regexp.MustCompile(`"below": \[[^]]*\],?`)
	if !editIndex(t, l.dir, func(index []byte) []byte { return list.ReplaceAll(index, nil) }) {
		t.Fatal("no record lists what lies below")
	}
	var err error
	l.Store, err = image.Open(l.dir, recipeFS(), image.Options{
		InUse:    func(context.Context) ([]string, error) { return l.needed, nil },
		Released: func(context.Context) ([]string, error) { return l.dropped, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.needed, l.dropped = []string{over.Digest}, []string{base.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles(base.Digest, over.Digest)
}
