// Package rootcache keeps the root filesystems that a worker has got from its server, and the account of the worker's disk.
//
// A root filesystem is a file, or a stack of files (see package stack), each named by its digest. A file is in the cache when its
// content was compared with its digest, since the host booted (see package integrity). Files that a box uses, or a caller
// holds, stay; of the others, the least recently used go when something else needs their space.
//
// The directory has images/HEX.erofs, used/HEX, whose times are the last uses, verified/HEX for package integrity, and boxes/ID with
// the digest of what a box uses. Nothing is synced: after a crash of the host all files are compared again, and no box lives.
package rootcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	newPrefix = ".new-"
	// SpareBytes stay free for everything but root filesystems and staged checkpoints, which keep more free.
	SpareBytes = 256 << 20
	retryAfter = time.Minute // the advice of a refusal because of a full disk
)

var validDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Cache is a directory with root filesystems. It is safe for concurrent use; one process may use a directory at a time.
type Cache struct {
	dir      string
	keepFree int64
	records  *integrity.Records
	log      *slog.Logger
	space    ballast.Reservations

	mu    sync.Mutex
	files map[string]*file         // by digest; guarded by mu
	boxes map[sandbox.ID]boxRecord // guarded by mu
}

// file is a complete file of the cache.
type file struct {
	used time.Time
	size int64
	pins int // holders and boxes
	// checked says that it was compared with its digest in this process or since the host booted.
	checked   bool
	verifying sync.Mutex // held while it is compared
}

// boxRecord has the files of a box.
type boxRecord struct {
	top    string
	pinned []string
}

// Open returns the cache in a directory, which it makes. Fetches of root filesystems leave keepFree bytes of the disk free.
func Open(dir string, keepFree int64, log *slog.Logger) (*Cache, error) {
	c := &Cache{dir: dir, keepFree: keepFree, log: log, files: map[string]*file{}, boxes: map[sandbox.ID]boxRecord{}}
	for _, sub := range []string{"images", "used", "boxes"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("cache of root filesystems: %w", err)
		}
	}
	var err error
	if c.records, err = integrity.Open(filepath.Join(dir, "verified"), log); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "images"))
	if err != nil {
		return nil, fmt.Errorf("cache of root filesystems: %w", err)
	}
	for _, e := range entries {
		digest := "sha256:" + strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
		if !validDigest.MatchString(digest) || e.Name() != stack.FileName(digest) { // of a fetch that was interrupted
			if err := os.RemoveAll(filepath.Join(dir, "images", e.Name())); err != nil {
				return nil, fmt.Errorf("cache of root filesystems: %w", err)
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("cache of root filesystems: %w", err)
		}
		f := &file{size: info.Size()}
		if info, err := os.Stat(c.usedPath(digest)); err == nil {
			f.used = info.ModTime()
		}
		c.files[digest] = f
	}
	c.prune()
	return c, c.readBoxes()
}

// prune removes records of files that are not in the cache.
func (c *Cache) prune() {
	if err := c.records.Prune(func(digest string) bool { return c.files[digest] != nil }); err != nil {
		c.log.Warn("old records of verified images stay", "error", err)
	}
	entries, _ := os.ReadDir(filepath.Join(c.dir, "used")) // a file that stays is small
	for _, e := range entries {
		if c.files["sha256:"+e.Name()] == nil {
			_ = os.Remove(filepath.Join(c.dir, "used", e.Name()))
		}
	}
}

// readBoxes reads what the boxes of the process before use.
func (c *Cache) readBoxes() error {
	entries, err := os.ReadDir(filepath.Join(c.dir, "boxes"))
	if err != nil {
		return fmt.Errorf("cache of root filesystems: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(c.dir, "boxes", e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("cache of root filesystems: %w", err)
		}
		if id, ok := sandbox.ParseID(e.Name()); ok {
			pinned, err := c.stackOf(string(text))
			if err == nil {
				c.pin(pinned, 1)
				c.boxes[id] = boxRecord{string(text), pinned}
				continue
			}
			if code := sandbox.CodeOf(err); code != sandbox.NotFound && code != sandbox.Invalid {
				return fmt.Errorf("cache of root filesystems: %w", err)
			}
		}
		if err := os.Remove(path); err != nil { // it was being written, or its files are gone with its box
			return fmt.Errorf("cache of root filesystems: %w", err)
		}
	}
	return nil
}

// Path returns the path of the file of a root filesystem.
func (c *Cache) Path(digest string) string {
	return filepath.Join(c.dir, "images", stack.FileName(digest))
}

func (c *Cache) usedPath(digest string) string {
	return filepath.Join(c.dir, "used", strings.TrimPrefix(digest, "sha256:"))
}

func (c *Cache) boxPath(id sandbox.ID) string { return filepath.Join(c.dir, "boxes", string(id)) }

// stackOf returns the digests of a root filesystem and all below it. Errors: NotFound unless the cache has all of them.
func (c *Cache) stackOf(top string) ([]string, error) {
	if !validDigest.MatchString(top) {
		return nil, sandbox.InvalidField("rootfs", "%.100q is no digest", top)
	}
	if c.files[top] == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "the worker does not have the root filesystem %s", top)
	}
	below, err := stack.ReadFile(c.Path(top))
	if err != nil {
		return nil, err
	}
	for _, digest := range below {
		if c.files[digest] == nil {
			return nil, sandbox.Errorf(sandbox.NotFound, "the worker does not have the root filesystem %s", digest)
		}
	}
	return append([]string{top}, below...), nil
}

// pin changes the pins of files.
//
// Preconditions: c.mu is held, or c is not shared yet.
func (c *Cache) pin(digests []string, n int) {
	for _, digest := range digests {
		c.files[digest].pins += n
	}
}

// Hold returns which files the cache lacks. It keeps the others until release is called. A file that is damaged is removed and lacks.
// Errors: Invalid for what is no digest; the file system's.
func (c *Cache) Hold(ctx context.Context, digests []string) (lacks []string, release func(), err error) {
	var held []string
	release = sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pin(held, -1)
	})
	for _, digest := range digests {
		if !validDigest.MatchString(digest) {
			release()
			return nil, nil, sandbox.InvalidField("rootfs", "%.100q is no digest", digest)
		}
		f := c.take(digest)
		if f == nil {
			lacks = append(lacks, digest)
			continue
		}
		err := c.verify(ctx, f, digest)
		var damaged *integrity.DamagedError
		switch {
		case errors.As(err, &damaged):
			c.log.Error("a root filesystem of the worker is damaged, getting it again", "digest", digest, "error", err)
			err = c.removeDamaged(digest)
			lacks = append(lacks, digest)
		case err == nil:
			held = append(held, digest)
		default:
			c.untake(digest)
		}
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("root filesystem %s: %w", digest, err)
		}
	}
	return lacks, release, nil
}

// take pins a file and records its use. It returns nil if the cache lacks it.
func (c *Cache) take(digest string) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[digest]
	if f == nil {
		return nil
	}
	f.pins++
	f.used = time.Now()
	if err := os.WriteFile(c.usedPath(digest), nil, 0o600); err != nil { // only the order of removals suffers
		c.log.Warn("the use of a root filesystem is not recorded", "digest", digest, "error", err)
	}
	_ = os.Chtimes(c.usedPath(digest), f.used, f.used)
	return f
}

func (c *Cache) untake(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin([]string{digest}, -1)
}

// verify compares a file with its digest, unless that was done since the host booted.
func (c *Cache) verify(ctx context.Context, of *file, digest string) error {
	of.verifying.Lock() // the first reads it for all
	defer of.verifying.Unlock()
	path := c.Path(digest)
	err := c.records.Check(digest, path, func() (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		sum := sha256.New()
		_, err = io.Copy(sum, readerFunc(func(p []byte) (int, error) {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			return f.Read(p)
		}))
		return "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
	})
	if err == nil {
		c.mu.Lock()
		of.checked = true
		c.mu.Unlock()
	}
	return err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// removeDamaged removes a file that the caller has taken. Boxes that use it keep what they have open.
func (c *Cache) removeDamaged(digest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[digest]
	f.pins--
	f.checked = false
	if f.pins > 0 { // its name is replaced by the next Add
		return nil
	}
	return c.remove(digest)
}

// Add reads a file of size bytes and puts it into the cache. Errors: DiskFull; Unavailable when it does not have its digest; r's.
func (c *Cache) Add(digest string, size int64, r io.Reader) (err error) {
	if !validDigest.MatchString(digest) || size <= 0 {
		return sandbox.InvalidField("rootfs", "%.100q of %d bytes is no root filesystem", digest, size)
	}
	space, err := c.Reserve(size, c.keepFree)
	if err != nil {
		return err
	}
	defer space.Release()
	f, err := os.CreateTemp(filepath.Join(c.dir, "images"), newPrefix+"*")
	if err != nil {
		return full(err)
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum, wrote{space}), io.LimitReader(r, size+1))
	if err != nil {
		return full(err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); n != size || got != digest {
		return sandbox.Errorf(sandbox.Unavailable, "the root filesystem %s arrived with %d bytes and digest %s", digest, n, got)
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(f.Name(), c.Path(digest)); err != nil {
		return full(err)
	}
	if c.files[digest] == nil {
		c.files[digest] = &file{}
	}
	c.files[digest].used, c.files[digest].size, c.files[digest].checked = time.Now(), size, true
	c.records.Written(digest, c.Path(digest))
	return nil
}

// Use records that a box uses a root filesystem and returns its path; "" for "". undo is for a box that was not made.
// Errors: NotFound unless the cache has it and all below it, and Hold or Add has compared them; the file system's.
func (c *Cache) Use(id sandbox.ID, digest string) (path string, undo func(), err error) {
	if digest == "" {
		return "", func() {}, nil
	}
	if parsed, ok := sandbox.ParseID(string(id)); !ok || parsed != id {
		return "", nil, sandbox.InvalidField("id", "%.100q is not an id", string(id))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.boxes[id]
	pinned, err := c.stackOf(digest)
	for _, below := range pinned {
		if !c.files[below].checked {
			err = sandbox.Errorf(sandbox.NotFound, "the worker has not compared the root filesystem %s with its digest", below)
		}
	}
	if err != nil {
		return "", nil, err
	}
	if err := c.use(id, digest); err != nil {
		return "", nil, err
	}
	return c.Path(digest), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if before.top == "" {
			c.unuse(id)
		} else if err := c.use(id, before.top); err != nil {
			c.log.Error("the use of a root filesystem is not recorded", "box", id, "error", err)
		}
	}, nil
}

// use records what a box uses instead of what it used.
//
// Preconditions: c.mu is held.
func (c *Cache) use(id sandbox.ID, digest string) error {
	pinned, err := c.stackOf(digest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.boxPath(id)+newPrefix, []byte(digest), 0o600); err != nil {
		return full(err)
	}
	if err := os.Rename(c.boxPath(id)+newPrefix, c.boxPath(id)); err != nil {
		return full(err)
	}
	c.pin(pinned, 1)
	c.pin(c.boxes[id].pinned, -1)
	c.boxes[id] = boxRecord{digest, pinned}
	return nil
}

// Unuse records that a box is gone.
func (c *Cache) Unuse(id sandbox.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unuse(id)
}

func (c *Cache) unuse(id sandbox.ID) {
	r, ok := c.boxes[id]
	if !ok {
		return
	}
	c.pin(r.pinned, -1)
	delete(c.boxes, id)
	if err := os.Remove(c.boxPath(id)); err != nil {
		c.log.Warn("the record of a box that is gone stays", "box", id, "error", err)
	}
}

// Retain removes the records of all other boxes.
func (c *Cache) Retain(ids []sandbox.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.boxes {
		if !slices.Contains(ids, id) {
			c.unuse(id)
		}
	}
}
