package imagerows_test

import (
	"os"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/stack"
)

// TestRowsRegainWhatLiesBelow opens a directory whose rows a program wrote that knows no layers.
func TestRowsRegainWhatLiesBelow(t *testing.T) {
	d := newDirectory(t)
	base, over := d.image("base", 1), d.image("over", 2)
	d.images(base, over)
	if err := d.change(d.open(d.rows()), func(ix *index.Index) { ix.Add(base); ix.Add(over) }); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.path("images/"+stack.FileName(over.Digest)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := stack.Write(f, []string{base.Digest}); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 10); err != nil {
		t.Fatal(err)
	}
	d.open(d.rows())
	list, err := d.rows().Images(t.Context())
	if err != nil || len(list) != 2 || len(list[0].Below) != 0 || !slices.Equal(list[1].Below, []string{base.Digest}) {
		t.Errorf("the rows are %+v, %v", list, err)
	}
}
