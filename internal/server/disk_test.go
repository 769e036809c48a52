package server

import (
	"context"
	"testing"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/image"
)

// sized are memory templates of that size.
type sized int64

func (s *sized) RemoveAll() int64 {
	freed := *s
	*s = 0
	return int64(freed)
}

// TestCachesAreRemoved: memory templates go with the caches, so that no sandbox ends for them.
func TestCachesAreRemoved(t *testing.T) {
	inUse := func(context.Context) ([]string, error) { return nil, nil }
	store, err := image.Open(t.TempDir(), images.FS, image.Options{InUse: inUse})
	if err != nil {
		t.Fatal(err)
	}
	templates := sized(7)
	d := &disk{images: store, templates: &templates}
	for _, want := range []int64{7, 0} {
		if freed, err := d.RemoveCaches(t.Context()); err != nil || freed != want {
			t.Errorf("%d bytes were freed, %v; want %d", freed, err, want)
		}
	}
}
