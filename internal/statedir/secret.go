package statedir

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
)

// WriteSecret calls secret and writes its text as one line to the file name in dir, which
// only the owner of dir can read. It makes the file before it calls secret, so that no
// secret is made that cannot be written. It writes nothing when secret returns false, and
// reports whether it wrote.
//
// Errors: of secret, and of the disk.
func WriteSecret(dir, name string, secret func() (string, bool, error)) (made bool, err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*") // mode 0600
	if err != nil {
		return false, fmt.Errorf("make file %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, as it should
	defer f.Close()
	text, made, err := secret()
	if err != nil || !made {
		return false, err
	}
	if _, err := fmt.Fprintln(f, text); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := giveToOwner(f, dir); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	if err := durable.Sync(dir); err != nil {
		return false, fmt.Errorf("write file %s: %w", name, err)
	}
	return true, nil
}

// giveToOwner gives a file that root makes to the user whose directory it is in: the server may
// run as another user than its administrator's commands.
func giveToOwner(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
