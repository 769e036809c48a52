package ballast_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/ballast"
)

func open(t *testing.T, dir string, size int64) *ballast.Ballast {
	t.Helper()
	b, err := ballast.Open(dir, size, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// blocks returns the bytes that the files of a directory take on the disk.
func blocks(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, e.Name()), &st); err != nil {
			t.Fatal(err)
		}
		n += st.Blocks * 512
	}
	return n
}

func TestBallastIsGivenUpInPortionsAndMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ballast")
	const size = 8 << 20
	b := open(t, dir, size)
	if b.Release() {
		t.Error("a ballast that was never made was given up")
	}
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	if held, taken := b.Reserved(), blocks(t, dir); held != size || taken < size {
		t.Fatalf("it says that it holds %d, and its files take %d, want %d", held, taken, size)
	}
	b = open(t, dir, size) // as after a restart
	for _, want := range []int64{6 << 20, 4 << 20, 2 << 20, 0} {
		if !b.Release() || b.Reserved() != want || blocks(t, dir) != want {
			t.Fatalf("a release leaves %d, the files take %d, want %d", b.Reserved(), blocks(t, dir), want)
		}
	}
	if b.Release() {
		t.Error("more was given up than there was")
	}
	if err := b.Restore(); err != nil || b.Reserved() != size {
		t.Errorf("restored: %v, holds %d", err, b.Reserved())
	}
	if b = open(t, dir, size/2); b.Reserved() != 0 || blocks(t, dir) != 0 {
		t.Errorf("with another size %d are held, and the files take %d, want none before they are made", b.Reserved(), blocks(t, dir))
	}
}

func TestFewInodesAreLittleSpace(t *testing.T) {
	for _, c := range []struct {
		space ballast.Space
		want  int64
	}{
		{ballast.Space{Bytes: 1 << 30, Inodes: 1 << 20}, 1 << 30},
		{ballast.Space{Bytes: 1 << 30, Inodes: 100}, 100 * 64 << 10},
		{ballast.Space{Bytes: 1 << 30}, 0},
		{ballast.Space{Bytes: 1 << 60, Inodes: 1 << 62}, 1 << 60},
	} {
		if got := c.space.Usable(); got != c.want {
			t.Errorf("%+v: %d are usable, want %d", c.space, got, c.want)
		}
	}
}
