package image_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	for _, record := range filesIn(l.T, filepath.Join(l.dir, "verified"), "") {
		if _, err := os.Stat(filepath.Join(l.dir, "images", record+".erofs")); err != nil {
			l.Errorf("the record that %s is undamaged stays without its root filesystem: %v", record, err)
		}
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

// TestLostLayersCountWithTheImageBelow: the bound of lost layers is also for an image that nothing else keeps, and not for an image with
// a name.
func TestLostLayersCountWithTheImageBelow(t *testing.T) {
	for named, want := range map[bool]int{true: 3, false: 0} {
		l := newLosing(t, 0, 1<<20)
		base, err := l.Commit(t.Context(), image.CommitRequest{Layer: bytes.NewReader(tarball(t, file("large", noise(2<<20), 0o644))), Name: "app"})
		if err != nil {
			t.Fatal(err)
		}
		made := []image.Committed{base, commitAlone(t, l.Store, base.Digest, file("a", "1", 0o644)), commitAlone(t, l.Store, base.Digest, file("a", "2", 0o644))}
		if !named {
			if err := l.Removal().Remove(t.Context(), "app"); err != nil {
				t.Fatal(err)
			}
		}
		l.unused(2*time.Hour, made...)
		l.prune()
		l.wantStay(want, made...)
	}
}

// unused makes root filesystems look made and used a time ago.
func (l *losing) unused(by time.Duration, made ...image.Committed) {
	l.Helper()
	then := time.Now().UTC().Add(-by)
	for _, c := range made {
		used := filepath.Join(l.dir, "used", strings.TrimPrefix(c.Digest, "sha256:"))
		if err := os.Chtimes(used, then, then); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.Fatal(err)
		}
		at := regexp.MustCompile(`"updated_at": "[^"]*"`)
		editIndex(l.T, l.dir, func(record []byte) []byte {
			if !bytes.Contains(record, []byte(`"digest": "`+c.Digest+`"`)) {
				return record
			}
			return at.ReplaceAll(record, []byte(`"updated_at": "`+then.Format(time.RFC3339Nano)+`"`))
		})
	}
}

// wantStay compares which of some root filesystems have their files: the first stay of them.
func (l *losing) wantStay(stay int, of ...image.Committed) {
	l.Helper()
	for i, c := range of {
		if _, err := os.Stat(c.Path); (err == nil) != (i < stay) {
			l.Errorf("root filesystem %d of %d: %v; want %d to stay", i+1, len(of), err, stay)
		}
	}
}

// TestReleasedRootFilesystemsDoNotStayForAnHour: the files of deleted snapshots, which count for no limit, go ten minutes after
// their last use; what no database has yet stays for an hour, and what others need as long as they do.
func TestReleasedRootFilesystemsDoNotStayForAnHour(t *testing.T) {
	prunes := map[string]func(*losing) error{
		"Prune": func(l *losing) error {
			_, err := l.Removal().Prune(l.Context(), func(context.Context) ([]string, error) { return l.needed, nil })
			return err
		},
		"PruneFor": func(l *losing) error {
			_, err := l.Removal().PruneFor(l.Context(), image.PruneRequest{All: true})
			return err
		},
	}
	for name, prune := range prunes {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t, time.Hour, 0)
			var made []image.Committed
			for i := range 6 {
				made = append(made, commit(t, l.Store, "", file("a", strconv.Itoa(i), 0o644)))
			}
			begun, needed, below, used, young, deleted := made[0], made[1], made[2], made[3], made[4], made[5]
			over := make([]image.Committed, 2) // a snapshot of a sandbox of a snapshot, of each
			for i, base := range []image.Committed{below, deleted} {
				var err error
				over[i], err = l.Commit(t.Context(), image.CommitRequest{Base: base.Digest, Layer: bytes.NewReader(tarball(t, file("b", strconv.Itoa(i), 0o644))), User: "w", Alone: true})
				if err != nil || !over[i].Alone {
					t.Fatalf("a layer over %s: alone is %t, %v", base.Digest, over[i].Alone, err)
				}
			}
			l.needed = []string{needed.Digest, over[0].Digest}
			for _, c := range []image.Committed{needed, below, used, young, deleted, over[1]} {
				l.dropped = append(l.dropped, c.Digest)
			}
			l.unused(11*time.Minute, begun, needed, below, used, deleted, over[0], over[1])
			if _, _, err := l.Resolve(t.Context(), used.Digest); err != nil {
				t.Fatal(err)
			}
			all := []image.Committed{begun, needed, over[0], below, used, young, deleted, over[1]}
			if err := prune(l); err != nil {
				t.Fatal(err)
			}
			l.wantStay(6, all...)
			l.unused(11*time.Minute, used, young)
			if err := prune(l); err != nil {
				t.Fatal(err)
			}
			l.wantStay(4, all...)
			l.needed = nil
			if err := prune(l); err != nil {
				t.Fatal(err)
			}
			l.wantStay(3, begun, over[0], below, needed) // no database says that it released over[0]
		})
	}
}
