package backup

import (
	"errors"
	"os"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// blockBytes is the unit in which file systems allocate.
	blockBytes = 4 << 10
	// spareBytes is free space that a restore leaves, for directories and the start of a server.
	spareBytes = 16 << 20
)

// need is the disk space of a restore.
type need struct {
	files, bytes int64
}

// add adds a file with so many bytes that are not in holes.
func (n *need) add(bytes int64) {
	n.files++
	n.bytes += (bytes + blockBytes - 1) / blockBytes * blockBytes
}

// leavesOut reports whether the restore does not need a file.
func (o *RestoreOptions) leavesOut(name string) bool {
	return o.KeepImages && strings.HasPrefix(name, images+"/")
}

// space returns the free space of the file system of a directory.
func (o *RestoreOptions) space(dir string) (ballast.Space, error) {
	if o.free != nil {
		return o.free(dir)
	}
	return ballast.Free(dir)
}

// fits reports whether there is space for it.
func (n need) fits(have ballast.Space) bool {
	return n.bytes+spareBytes <= have.Bytes && n.files <= have.Inodes
}

// place adds a file, and returns the directory to write it to. When the files no longer fit, it is "", and what is there is removed.
func (n *need) place(bytes int64, have ballast.Space, dir string) (string, error) {
	fitted := n.fits(have)
	n.add(bytes)
	if dir == "" || n.fits(have) {
		return dir, nil
	}
	if fitted {
		return "", errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	}
	return "", nil
}

// check returns an error unless there is space for it in a directory. Errors: DiskFull, which says how much is needed.
func (n need) check(have ballast.Space, dir string) error {
	switch {
	case n.fits(have):
		return nil
	case n.files > have.Inodes:
		return sandbox.Errorf(sandbox.DiskFull, "the restore needs %d free inodes, and the file system of %s has %d; nothing was changed", n.files, dir, have.Inodes)
	}
	return sandbox.Errorf(sandbox.DiskFull, "the restore needs %s of free space, and the file system of %s has %s; nothing was changed", show(n.bytes+spareBytes), dir, show(have.Bytes))
}

// show formats bytes, exactly and for people.
func show(n int64) string {
	return humanize.Comma(n) + " bytes (" + humanize.IBytes(uint64(max(0, n))) + ")"
}
