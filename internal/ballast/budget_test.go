package ballast_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestBudgetIsASum reserves a third of the free space again and again: the reservations count together, until they are written or released.
func TestBudgetIsASum(t *testing.T) {
	dir := t.TempDir()
	free, err := ballast.Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	third := (free.Usable() - 1<<30) / 3
	if third < 1<<20 {
		t.Skip("the disk is nearly full")
	}
	b := ballast.NewBudget(1 << 30)
	reserve := func() (*ballast.Reservation, error) { return b.Reserve(dir, third, "fetch it") }
	first, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reserve(); err != nil {
		t.Fatal(err)
	}
	// Other programs use the disk as well; this keeps a gigabyte more free than there is.
	if _, err := b.Reserve(dir, third+1<<30, "fetch it"); sandbox.CodeOf(err) != sandbox.DiskFull {
		t.Errorf("a reservation beyond the space = %v, want disk_full", err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := first.WriterAt(f).WriteAt([]byte("written"), 100); n != 7 || err != nil {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	first.Release()
	first.Release() // has no effect
	if _, err := b.Reserve(dir, third+third/2, "fetch it"); err != nil {
		t.Errorf("a reservation after a release = %v", err)
	}
	for _, keep := range []int64{0, free.Usable() - 100<<20} { // less than 256 MiB is free then
		if _, err := ballast.NewBudget(keep).Reserve(dir, free.Usable()-200<<20, "fetch it"); sandbox.CodeOf(err) != sandbox.DiskFull {
			t.Errorf("with %d bytes to keep free, Reserve = %v, want disk_full", keep, err)
		}
	}
}
