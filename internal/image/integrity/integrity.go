// Package integrity remembers which files of an image store were checked against their digests since
// the host booted, so that a restart of the server reads none of them again. A check reads a second
// per gigabyte; what it guards against, a disk that answers with other bytes than were written, needs
// an occasion: a host that went down, or a file that was copied, replaced or changed.
//
// A record is a small file for each digest. It holds the boot id of the host, and device, inode, size
// and times of the file that was checked. A record that differs from the file in any of
// these says nothing. Records are not synced: none outlives the boot in which it was made.
package integrity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bootID is the file with the identity of the host's current boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// unfinished begins the name of a record that is being written.
const unfinished = ".new-"

// Records are the checked files of a directory. They are safe for concurrent use, also by several
// processes.
type Records struct {
	dir    string
	shared bool // other stores have records in it, too
	log    *slog.Logger
	boot   func() (string, error)
}

// Open returns the records in dir, which it creates when it is missing.
func Open(dir string, log *slog.Logger) (*Records, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open the records of verified images: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the records of verified images: %w", err)
	}
	return &Records{dir: dir, shared: info.Mode()&fs.ModeSymlink != 0, log: log, boot: sync.OnceValues(func() (string, error) {
		data, err := os.ReadFile(bootID)
		return strings.TrimSpace(string(data)), err
	})}, nil
}

// identity identifies the content of a file as far as the file system knows it: a change of the
// content, made by any ordinary means, changes the identity.
type identity struct {
	Boot     string `json:"boot"`   // the boot id of the host
	Device   uint64 `json:"device"` // of the file system
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`     // bytes
	Modified int64  `json:"modified"` // nanoseconds since 1970
	Changed  int64  `json:"changed"`  // the time of the last change of the inode, also by a new link; nanoseconds since 1970
}

// identify returns the current identity of a file. Errors: the file system's.
func (r *Records) identify(file string) (identity, error) {
	boot, err := r.boot()
	if err != nil {
		return identity{}, fmt.Errorf("read the boot id: %w", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, fmt.Errorf("identify %s: its file system has no inodes", file)
	}
	return identity{
		Boot: boot, Device: st.Dev, Inode: st.Ino, Size: info.Size(), Modified: info.ModTime().UnixNano(), Changed: st.Ctim.Nano(),
	}, nil
}

// Check compares the digest of a file, which read computes, and records that they are equal. It does
// not call read if there is a record of the unchanged file. It returns an error if they differ,
// and the errors of read and of the file system.
func (r *Records) Check(digest, file string, read func() (string, error)) error {
	// From before the content is read, so that a change under the reader does not count as verified.
	now, err := r.identify(file)
	if err != nil {
		return err
	}
	if r.recorded(digest) == now {
		return nil
	}
	got, err := read()
	if err != nil {
		return err
	}
	if got != digest {
		return &DamagedError{File: file, Digest: got}
	}
	r.add(digest, now)
	return nil
}

// DamagedError is the error of a file without the digest that it should have.
type DamagedError struct {
	File   string // its path
	Digest string // the digest of its content, "sha256:HEX"
}

// Error says which digest the file has.
func (e *DamagedError) Error() string { return e.File + " has digest " + e.Digest }

// Written records that the caller has just written a file with a digest.
func (r *Records) Written(digest, file string) {
	if id, err := r.identify(file); err == nil { // a file that was removed again needs no record
		r.add(digest, id)
	}
}

// recorded returns the identity of the verified file with a digest, or none.
func (r *Records) recorded(digest string) (id identity) {
	data, err := os.ReadFile(r.path(digest))
	if err != nil || json.Unmarshal(data, &id) != nil {
		return identity{}
	}
	return id
}

// add records that the content with an identity has a digest. Without the record the file is read
// again after a restart, so that an error is no reason to fail.
func (r *Records) add(digest string, id identity) {
	if err := r.write(digest, id); err != nil {
		r.log.Warn("cannot record that an image is undamaged; the next start reads it again", "digest", digest, "error", err)
	}
}

func (r *Records) write(digest string, id identity) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(r.dir, unfinished+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path(digest))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// Forget removes the record of a digest, whose file the caller has removed. [Records.Prune] removes a record that stays
// after an error of the file system, which is logged.
func (r *Records) Forget(digest string) {
	if err := os.Remove(r.path(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the record of a removed image stays", "digest", digest, "error", err)
	}
}

// abandoned is the age after which a file of an unfinished Add belongs to a process that was killed.
const abandoned = time.Hour

// Prune removes all records but for the digests that keep accepts, and what killed processes left. In a
// directory that is a link, which other stores share, only records of earlier boots are removed.
// Errors: the file system's.
func (r *Records) Prune(keep func(digest string) bool) error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < abandoned {
				continue
			}
		} else if digest := "sha256:" + e.Name(); keep(digest) || r.shared && r.isCurrent(digest) {
			continue
		}
		if err := os.Remove(filepath.Join(r.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isCurrent reports whether the record of a digest is of this boot of the host.
func (r *Records) isCurrent(digest string) bool {
	boot, err := r.boot()
	return err != nil || r.recorded(digest).Boot == boot
}

func (r *Records) path(digest string) string {
	return filepath.Join(r.dir, strings.TrimPrefix(digest, "sha256:"))
}
