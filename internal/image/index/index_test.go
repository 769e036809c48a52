package index

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/archive"
)

// TestEntry: an image is made from the record with its name, owner, digest and time, and records of other files cost
// little.
func TestEntry(t *testing.T) {
	at := time.Unix(1000, 0)
	ix := Index{Images: []Record{{Name: "app", Tag: "v1", Digest: "same", UpdatedAt: at, Owner: "another"}, {Name: "app", Tag: "v1", Digest: "same", UpdatedAt: at.Add(1)}}}
	for i := range 1000 {
		ix.Images = append(ix.Images, Record{Name: "app", Tag: "v1", Digest: fmt.Sprint(i), UpdatedAt: at})
	}
	last := Record{Name: "app", Tag: "v1", Digest: "same", UpdatedAt: at}
	ix.Images = append(ix.Images, last)
	img := last.Image()
	img.UpdatedAt = at.UTC() // the same time
	if got := ix.Entry(img); got != &ix.Images[len(ix.Images)-1] {
		t.Errorf("the entry is %+v", got)
	}
	if n := testing.AllocsPerRun(10, func() { ix.Entry(img) }); n > 100 {
		t.Errorf("%v allocations for %d records", n, len(ix.Images))
	}
	img.Digest = "none"
	if got := ix.Entry(img); got != nil {
		t.Errorf("the entry of an image without a record is %+v", got)
	}
}

// TestImageSums: the size of an image includes what lies below it. A loaded index looks at its records once for that, and
// an index that changes looks again.
func TestImageSums(t *testing.T) {
	dir := t.TempDir()
	layout, err := archive.OpenLayout(filepath.Join(dir, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Lock: filepath.Join(dir, "lock"), Images: filepath.Join(dir, "images"), Layout: layout, Log: slog.New(slog.DiscardHandler)}
	table, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ix, unlock, err := table.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ref := archive.Ref{Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	ix.Add(Record{Digest: "sha256:a", SizeBytes: 100, CacheKey: "a", Manifest: ref})
	ix.Add(Record{Digest: "sha256:b", SizeBytes: 20, CacheKey: "b", Manifest: ref, Below: []string{"sha256:a"}})
	ix.Add(Record{Digest: "sha256:c", SizeBytes: 3, CacheKey: "c", Manifest: ref, Below: []string{"sha256:b", "sha256:a"}})
	if err := table.Write(ix); err != nil {
		t.Fatal(err)
	}
	ix.Images[1].SizeBytes = 21
	if img := ix.Image(&ix.Images[2]); img.SizeBytes != 124 || img.OwnBytes != 3 {
		t.Errorf("after a change: %+v, want 124 bytes", img)
	}
	unlock()
	again, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for what, table := range map[string]*Table{"written": table, "read": again} {
		loaded, err := table.Load()
		if err != nil {
			t.Fatal(err)
		}
		if img := loaded.Image(&loaded.Images[2]); img.SizeBytes != 123 || img.OwnBytes != 3 {
			t.Errorf("%s: %+v, want 123 bytes", what, img)
		}
		if loaded.Images[1].SizeBytes = 0; loaded.Image(&loaded.Images[2]).SizeBytes != 123 {
			t.Errorf("%s: another image looks at all records again", what)
		}
	}
}
