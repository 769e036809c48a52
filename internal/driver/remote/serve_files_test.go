package remote

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// counter tells what is counted.
type counter chan int64

func (c counter) Wrote(n int64) { c <- n }

// TestCountWritten checks that a save counts each of its bytes once, also when a directory gets its name.
func TestCountWritten(t *testing.T) {
	dir := t.TempDir()
	ticks, counted := make(chan time.Time), make(counter, 1)
	stop := countWritten(counted, dir, ticks)
	temp := filepath.Join(dir, ".new-1")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	const part = 1 << 20
	total := int64(0)
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(temp, name), make([]byte, part), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(temp, name), 1<<40); err != nil { // the rest is a hole
			t.Fatal(err)
		}
		ticks <- time.Time{}
		n := <-counted
		if total += n; n < part || n > part+part/4 {
			t.Errorf("%d bytes are counted of a file of %d", n, part)
		}
	}
	if err := os.Rename(temp, filepath.Join(dir, "saved")); err != nil {
		t.Fatal(err)
	}
	ticks <- time.Time{}
	ticks <- time.Time{} // the one before has been counted
	stop()
	select {
	case n := <-counted:
		t.Errorf("%d bytes are counted again after %d", n, total)
	default:
	}
}
