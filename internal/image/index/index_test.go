package index

import (
	"fmt"
	"testing"
	"time"
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
