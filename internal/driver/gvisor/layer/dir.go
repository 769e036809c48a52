package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"

	"github.com/modbox/modbox/internal/sandbox"
)

// The layers that can be files, by the ends of their names.
const (
	rootLayer = ".root"
	tmpLayer  = ".tmp"
)

// Dir is the directory with the files of all boxes.
type Dir string

// Create creates the files of a box whose layers are on disk, in the order in which
// [Layout.Mounts] names them. The caller closes them. On an error it may leave some of them.
func (d Dir) Create(id sandbox.ID, l Layout) ([]*os.File, error) {
	ends := []string{rootLayer, tmpLayer}
	if l.PlainTmp {
		ends = ends[:1]
	}
	var files []*os.File
	for _, end := range ends {
		f, err := os.OpenFile(d.file(id, end), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("create writable layer: %w", err)
		}
		// gVisor maps the file. Some integrity measurements prevent that unless it was mapped
		// before; inside gVisor's system call filter it is too late for that.
		pgalloc.IMAWorkAroundForMemFile(f.Fd())
		files = append(files, f)
	}
	return files, nil
}

// Remove removes the files of a box; missing files are not an error.
func (d Dir) Remove(id sandbox.ID) error {
	var errs []error
	for _, end := range []string{rootLayer, tmpLayer} {
		if err := os.Remove(d.file(id, end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RemoveDead removes the files of boxes without running processes, and returns the bytes freed. No
// server may make boxes meanwhile.
func (d Dir) RemoveDead() (freed int64, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list layers: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if _, ok := owner(e.Name()); !ok {
			continue
		}
		n, err := removeUnused(filepath.Join(string(d), e.Name()))
		freed += n
		errs = append(errs, err)
	}
	return freed, errors.Join(errs...)
}

// removeUnused removes a file that no process has open, and returns the bytes freed.
func removeUnused(path string) (freed int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// The kernel gives a write lease only to the sole opener of a file.
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find out whether %s is used: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	if err := os.Remove(path); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}

// Bytes returns how much disk the files of a box use.
func (d Dir) Bytes(id sandbox.ID) int64 {
	var total int64
	for _, end := range []string{rootLayer, tmpLayer} {
		var st unix.Stat_t
		if err := unix.Stat(d.file(id, end), &st); err == nil {
			total += st.Blocks * 512
		}
	}
	return total
}

// Owners returns the boxes that have files. Errors: the system's, with [fs.ErrNotExist] in the chain
// when there is no directory.
func (d Dir) Owners() (map[sandbox.ID]bool, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("list writable layers: %w", err)
	}
	owners := make(map[sandbox.ID]bool, len(entries))
	for _, e := range entries {
		if id, ok := owner(e.Name()); ok {
			owners[id] = true
		}
	}
	return owners, nil
}

// owner returns the box that a file belongs to.
func owner(name string) (sandbox.ID, bool) {
	for _, end := range []string{rootLayer, tmpLayer} {
		if id, ok := strings.CutSuffix(name, end); ok {
			return sandbox.ParseID(id)
		}
	}
	return "", false
}

func (d Dir) file(id sandbox.ID, end string) string { return filepath.Join(string(d), string(id)+end) }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
