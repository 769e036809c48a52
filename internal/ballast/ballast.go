package ballast

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// files is the number of files of the ballast, portion the number of files that one Release
	// removes.
	files   = 8
	portion = 2
)

// Ballast is a directory of files that keep disk space in reserve. Safe for concurrent
// use. One process may use a directory at a time.
type Ballast struct {
	dir  string
	size int64 // of one file, in bytes
	log  *slog.Logger

	mu          sync.Mutex
	exist       [files]bool // the files that exist; guarded by mu
	unsupported bool        // the file system cannot reserve space; guarded by mu
}

// Open returns the ballast of size bytes in a directory, which need not exist. It makes no files:
// [Ballast.Restore] does. It removes files of another size, from an earlier setting. A size of 0
// turns the ballast off.
func Open(dir string, size int64, log *slog.Logger) (*Ballast, error) {
	b := &Ballast{dir: dir, size: size / files, log: log}
	for i := range b.exist {
		var st unix.Stat_t
		err := unix.Stat(b.path(i), &st)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("open ballast: %w", err)
		case b.size > 0 && st.Size == b.size:
			b.exist[i] = true
		default:
			if err := os.Remove(b.path(i)); err != nil {
				return nil, fmt.Errorf("open ballast: %w", err)
			}
		}
	}
	return b, nil
}

func (b *Ballast) path(i int) string { return filepath.Join(b.dir, strconv.Itoa(i)) }

// Reserved returns the bytes in reserve.
func (b *Ballast) Reserved() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(0)
	for _, held := range b.exist {
		if held {
			n += b.size
		}
	}
	return n
}

// Size returns the bytes of the whole ballast.
func (b *Ballast) Size() int64 { return b.size * files }

// Release removes a quarter of the ballast and reports whether it freed anything: then a write that
// found the disk full is worth another attempt.
func (b *Ballast) Release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	given := 0
	for i := range b.exist {
		if !b.exist[i] || given == portion {
			continue
		}
		if err := os.Remove(b.path(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.log.Error("a file of the ballast is not removed", "error", err)
			continue
		}
		b.exist[i] = false
		given++
	}
	if given > 0 {
		b.log.Warn("the disk is full: a part of the ballast is given up", "bytes", int64(given)*b.size)
	}
	return given > 0
}

// Restore makes the missing files again, as long as more space than the whole ballast stays free
// beside them. Lack of space is no error.
func (b *Ballast) Restore() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size == 0 || b.unsupported {
		return nil
	}
	made := int64(0)
	for i, held := range b.exist {
		if held {
			continue
		}
		if made == 0 {
			if err := os.MkdirAll(b.dir, 0o700); err != nil {
				return ignoreFull(fmt.Errorf("make ballast: %w", err))
			}
		}
		free, err := Free(b.dir)
		if err != nil {
			return err
		}
		if free.Bytes < b.size*(files+1) || free.Inodes < 2*files {
			break
		}
		err = reserve(b.path(i), b.size)
		if errors.Is(err, unix.EOPNOTSUPP) {
			b.unsupported = true
			b.log.Warn("the file system of the state directory cannot reserve space: there is no ballast for when it is full", "directory", b.dir)
			return nil
		}
		if err != nil {
			return ignoreFull(fmt.Errorf("make ballast: %w", err))
		}
		b.exist[i] = true
		made += b.size
	}
	if made > 0 {
		b.log.Info("space on the disk is reserved", "ballast", b.dir, "bytes", made)
	}
	return nil
}

// reserve makes a file whose blocks are allocated, or nothing.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// IsFull reports whether an error means that a file system has no space, or no inodes.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func ignoreFull(err error) error {
	if IsFull(err) {
		return nil
	}
	return err
}

// Space is the free space of a file system.
type Space struct {
	// Bytes and Inodes are free, for users without privileges; Size is the total number of bytes. A
	// file system that does not count its inodes has 1<<62 of them.
	Bytes, Size, Inodes int64
}

// inodeBytes is the number of free bytes that a free inode counts as. Stored output uses most
// inodes, a few small files for each command.
const inodeBytes = 64 << 10

// Usable returns the bytes that files of all sizes may take: Bytes, or 64 KiB for each free inode
// when that is less.
func (s Space) Usable() int64 {
	return min(s.Bytes, min(s.Inodes, math.MaxInt64/inodeBytes)*inodeBytes)
}

// Free returns the space on the file system of a path, which must exist.
func Free(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, fmt.Errorf("free space of %s: %w", path, err)
	}
	s := Space{Bytes: int64(st.Bavail) * st.Bsize, Size: int64(st.Blocks) * st.Bsize, Inodes: int64(st.Ffree)}
	if st.Files == 0 { // Btrfs, for one
		s.Inodes = 1 << 62
	}
	return s, nil
}
