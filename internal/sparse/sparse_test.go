package sparse_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/sparse"
)

// TestWriter: in parts of any size, the file has the content, and space only for the blocks with data.
func TestWriter(t *testing.T) {
	content := make([]byte, 64<<20+100)
	rand.NewChaCha8([32]byte{1}).Read(content[5000:20000])
	content[32<<20] = 1
	for _, part := range []int{1000, 4096, 32 << 10, len(content)} {
		name := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := sparse.NewWriter(f)
		for rest := content; len(rest) > 0; {
			n, err := w.Write(rest[:min(part, len(rest))])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("in parts of %d: %d bytes, %v, want the %d bytes written", part, len(got), err, len(content))
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
			t.Errorf("in parts of %d: the file takes %d bytes of the disk, want only the blocks with data", part, used)
		}
	}
}

// TestAt writes parts from the last to the first.
func TestAt(t *testing.T) {
	content := make([]byte, 16<<20)
	content[0], content[9<<20+1] = 1, 1
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const part = 4 << 20
	for off := len(content) - part; off >= 0; off -= part {
		if n, err := sparse.NewAt(f).WriteAt(content[off:off+part], int64(off)); err != nil || n != part {
			t.Fatal(n, err)
		}
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v, want the %d bytes written", len(got), err, len(content))
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 64<<10 {
		t.Errorf("the file takes %d bytes of the disk, want only the blocks with data", used)
	}
}
