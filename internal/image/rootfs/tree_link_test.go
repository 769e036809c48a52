package rootfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinkOrCopy: on one file system a file gets another name, across two a copy.
func TestLinkOrCopy(t *testing.T) {
	near := filepath.Join(t.TempDir(), "from")
	far, err := os.CreateTemp("/dev/shm", "modbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(far.Name())
	defer far.Close()
	for name, from := range map[string]string{"link": near, "copy": far.Name()} {
		t.Run(name, func(t *testing.T) {
			content := string(make([]byte, 3*blockSize)) + "end"
			if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(filepath.Dir(near), "to-"+name)
			if err := LinkOrCopy(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(to); err != nil || string(got) != content {
				t.Errorf("it has %d bytes, %v", len(got), err)
			}
			var one, other unix.Stat_t
			if err := unix.Stat(from, &one); err != nil {
				t.Fatal(err)
			}
			if err := unix.Stat(to, &other); err != nil {
				t.Fatal(err)
			}
			if same := one.Ino == other.Ino && one.Dev == other.Dev; same != (one.Dev == other.Dev) {
				t.Errorf("the same file: %v", same)
			}
		})
	}
}
