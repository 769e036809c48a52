package image_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// losing is a store whose database knows what the test says.
type losing struct {
	*testing.T
	*image.Store
	dir             string
	needed, dropped []string
}

func newLosing(t *testing.T, age time.Duration, bytes int64) *losing {
	l := &losing{T: t, dir: t.TempDir()}
	var err error
	l.Store, err = image.Open(l.dir, recipeFS(), image.Options{
		InUse:    func(context.Context) ([]string, error) { return l.needed, nil },
		Released: func(context.Context) ([]string, error) { return l.dropped, nil },
		LostAge:  age, LostBytes: bytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// old has times of a kind in the index be long ago.
func (l *losing) old(kind string) {
	l.Helper()
	times := regexp.MustCompile(`"` + kind + `": "\d{4}`)
	editIndex(l.T, l.dir, func(index []byte) []byte { return times.ReplaceAll(index, []byte(`"`+kind+`": "2001`)) })
}

func (l *losing) prune() {
	l.Helper()
	if _, err := l.Removal().Prune(l.Context(), func(context.Context) ([]string, error) { return l.needed, nil }); err != nil {
		l.Fatal(err)
	}
}

// want compares what is lost, and that all of it has its file.
func (l *losing) want(digests ...string) {
	l.Helper()
	list, err := l.Removal().Lost(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, i.Digest)
		if _, _, err := l.Resolve(l.Context(), i.Digest); err != nil {
			l.Errorf("lost image %s: %v", i.Digest, err)
		}
	}
	slices.Sort(got)
	slices.Sort(digests)
	if !slices.Equal(got, digests) {
		l.Errorf("lost are %v, want %v", got, digests)
	}
}

func TestRootFilesystemThatNoDatabaseKnowsIsKept(t *testing.T) {
	l := newLosing(t, time.Hour, 0)
	needed, dropped, lost := commit(t, l.Store, "", file("a", "1", 0o644)), commit(t, l.Store, "", file("a", "2", 0o644)), commit(t, l.Store, "", file("a", "3", 0o644))
	l.needed, l.dropped = []string{needed.Digest}, []string{dropped.Digest}
	l.old("updated_at")
	l.prune()
	l.want(lost.Digest)
	if _, _, err := l.Resolve(t.Context(), dropped.Digest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("what the database gave up: %v, want it removed", err)
	}
	if _, err := l.Removal().PruneFor(t.Context(), image.PruneRequest{All: true}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Removal().Trim(t.Context(), 1, func(context.Context) ([]string, error) { return l.needed, nil }); err != nil {
		t.Fatal(err)
	}
	l.want(lost.Digest)

	// The right database is back, and gone again.
	l.needed = append(l.needed, lost.Digest)
	l.prune()
	l.want()
	l.needed = l.needed[:1]
	l.prune()
	l.want(lost.Digest)
	l.old("lost_at")
	l.prune()
	l.want()
	if _, _, err := l.Resolve(t.Context(), lost.Digest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("what is lost for too long: %v, want it removed", err)
	}
	if _, _, err := l.Resolve(t.Context(), needed.Digest); err != nil {
		t.Errorf("what is needed: %v", err)
	}
}

func TestLostRootFilesystemsAreBoundedAndRemovedWhenNeeded(t *testing.T) {
	l := newLosing(t, 0, 1) // less than any takes
	commit(t, l.Store, "", file("a", "1", 0o644))
	l.old("updated_at")
	l.prune()
	l.want()

	l = newLosing(t, 0, 0)
	first, second := commit(t, l.Store, "", file("a", "1", 0o644)), commit(t, l.Store, "", file("a", "2", 0o644))
	l.old("updated_at")
	l.prune()
	l.want(first.Digest, second.Digest)
	if err := l.Removal().RemoveLost(t.Context(), first.Digest); err != nil {
		t.Fatal(err)
	}
	if err := l.Removal().RemoveLost(t.Context(), first.Digest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("RemoveLost of what is not there = %v, want not_found", err)
	}
	l.want(second.Digest)
	if _, err := l.Removal().PruneFor(t.Context(), image.PruneRequest{All: true, Lost: true}); err != nil {
		t.Fatal(err)
	}
	l.want()
}
