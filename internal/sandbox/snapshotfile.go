package sandbox

import (
	"io/fs"
	"time"
)

// Limits of looking into snapshots.
const (
	SnapshotFilesMax = 10_000 // files of one answer
	// SnapshotPathMax bounds the path that is asked for, in bytes.
	SnapshotPathMax = 1024
	// SnapshotHashMax bounds the bytes that are read for the hashes of one answer.
	SnapshotHashMax = 64 << 20
)

// SnapshotFile is a name in a snapshot's root filesystem.
type SnapshotFile struct {
	// Path is absolute.
	Path    string
	Mode    fs.FileMode
	UID     uint32
	GID     uint32
	Size    int64 // bytes of a regular file
	ModTime time.Time
	Target  string // of a symbolic link
	// SHA256 is of what a regular file holds, in hexadecimal; "" when it was not asked
	// for, or the file is over [SnapshotHashMax].
	SHA256 string
}

// SnapshotFileQuery says which names are asked for: those below a directory, or
// a file alone.
type SnapshotFileQuery struct {
	// Path is the path of the directory or file; "" is the root.
	Path string
	// Recursive: not only the entries of the directory, but all below.
	Recursive bool
	// After is the path of the last file of the answer before; "" begins.
	After string
	// Limit bounds the answer; 0 is 1000.
	Limit int
	// Hash: with [SnapshotFile.SHA256]. An answer then ends early when that takes
	// too much.
	Hash bool
}

// SnapshotFilePage is a part of the files: a directory before its entries,
// else by the bytes of their names.
type SnapshotFilePage struct {
	Files []SnapshotFile
	// More: there are others after the last one.
	More bool
}

// ModeBits returns the permission bits of a mode with setuid, setgid and the
// sticky bit where Linux has them.
func ModeBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
