package gvisor

import (
	"os"
	"testing"
)

// TestUpdateOfADestroyedBox: a call that ends beside Destroy puts no file into the directory that Destroy removes.
func TestUpdateOfADestroyedBox(t *testing.T) {
	for _, destroyed := range []bool{false, true} {
		b := &box{dir: t.TempDir(), destroyed: destroyed}
		if err := b.setFrozen(true); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(b.dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(files) == 0; got != destroyed {
			t.Errorf("destroyed %v: files %v", destroyed, files)
		}
	}
}
