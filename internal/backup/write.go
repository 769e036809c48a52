package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// workPrefix begins the name of a directory, in the state directory, of a backup in progress.
const workPrefix = ".backup-"

// Store is the database to back up.
type Store interface {
	// CopyTo writes a consistent copy to a new file.
	CopyTo(ctx context.Context, path string) error
}

// Digests knows the root filesystems that the database refers to.
type Digests interface {
	// DigestsInUse returns the digests of the root filesystems that are needed.
	DigestsInUse(ctx context.Context) ([]string, error)
}

// Source is the server to back up; it may be running.
type Source struct {
	StateDir string
	// KeyFile has the keys of secrets; it may be missing, or outside of the state directory.
	KeyFile string
	Store   Store
	Digests Digests
	// Stored returns the digests of the files of images that are in an object store; nil for none.
	Stored  func(ctx context.Context) ([]string, error)
	Version string
}

// Options determine the content of a backup.
type Options struct {
	Images Images // "" is ImagesNeeded
	// WithoutCheckpoints leaves out saved sandboxes and checkpoints.
	WithoutCheckpoints bool
}

// Write makes a backup. It appears under its path only when it is complete and on the disk, and
// only this user can read it. Errors: Exists when there is something at path; the context's.
func Write(ctx context.Context, src Source, to string, o Options) (m Manifest, err error) {
	if o.Images == "" {
		o.Images = ImagesNeeded
	}
	if _, err := os.Lstat(to); err == nil {
		return m, sandbox.Errorf(sandbox.Exists, "the file %s already exists", to)
	}
	away, err := src.away(ctx, o)
	if err != nil {
		return m, err
	}
	work, release, err := gather(ctx, src, o)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, release()) }()
	m = Manifest{Format: manifestFormat, CreatedAt: time.Now().UTC(), Version: src.Version, Images: o.Images, Away: away, Checkpoints: !o.WithoutCheckpoints}
	if err := pack(ctx, work, to, &m); err != nil {
		return m, fmt.Errorf("backup to %s: %w", to, err)
	}
	return m, nil
}

// gather makes a directory with the content of a backup; release removes it.
func gather(ctx context.Context, src Source, o Options) (work string, release func() error, err error) {
	work, release, err = newWork(src.StateDir)
	if err != nil {
		return "", nil, fmt.Errorf("backup: %w", err)
	}
	if err := collect(ctx, src, work, o); err != nil {
		return "", nil, errors.Join(fmt.Errorf("backup: %w", err), release())
	}
	return work, release, nil
}

// newWork makes a directory for a backup and locks it, so that [Finish] leaves it alone.
func newWork(stateDir string) (dir string, release func() error, err error) {
	dir, err = os.MkdirTemp(stateDir, workPrefix)
	if err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), f.Close()) }, nil
}

// collect fills work with the content of the backup, copying little.
func collect(ctx context.Context, src Source, work string, o Options) error {
	if o.Images != ImagesNone {
		if err := indexed(filepath.Join(src.StateDir, images)); err != nil {
			return err
		}
	}
	trees := []string{"streams"}
	if !o.WithoutCheckpoints {
		trees = append(trees, checkpoints, "agents")
	}
	if o.Images == ImagesAll {
		trees = append(trees, images)
	}
	for round := range 2 {
		for _, tree := range trees {
			if err := linkTree(ctx, filepath.Join(src.StateDir, tree), filepath.Join(work, tree)); err != nil {
				return err
			}
		}
		if round == 0 {
			if err := src.Store.CopyTo(ctx, filepath.Join(work, Database)); err != nil {
				return err
			}
		}
	}
	for name, from := range map[string]string{
		keyFile: src.KeyFile, "token": filepath.Join(src.StateDir, "token"), "first-login": filepath.Join(src.StateDir, "first-login"),
		hostKeyFile: filepath.Join(src.StateDir, hostKeyFile),
	} {
		if err := link(from, filepath.Join(work, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if o.Images != ImagesNeeded {
		return nil
	}
	digests, err := src.Digests.DigestsInUse(ctx)
	if err != nil {
		return err
	}
	return linkImages(filepath.Join(src.StateDir, images), filepath.Join(work, images), digests)
}

// linkTree links the files in from that are missing in to. It skips files in progress and files
// that disappear.
func linkTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case underWay(rel, d):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular(), strings.HasSuffix(rel, ".lock"):
			return nil
		}
		if err := link(name, filepath.Join(to, rel)); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// underWay reports whether a directory contains unfinished files: temporary files of images,
// incomplete saved sandboxes, and checkpoints of forks.
func underWay(rel string, d fs.DirEntry) bool {
	if !d.IsDir() {
		return false
	}
	base := filepath.Base(rel)
	return rel == "tmp" || rel == "forks" || strings.HasPrefix(base, ".new-") || strings.HasPrefix(base, "part-")
}

// link gives a file a second name. Across file systems that is a symbolic link, which does not
// prevent the removal of the file.
func link(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return err
	}
	err := os.Link(from, to)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) {
		abs, aerr := filepath.Abs(from)
		if aerr != nil {
			return aerr
		}
		return os.Symlink(abs, to)
	}
	return err
}

// pack writes the files in dir, and then the manifest, to a new file.
func pack(ctx context.Context, dir, to string, m *Manifest) (err error) {
	f, err := os.CreateTemp(filepath.Dir(to), ".part-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = eachFile(dir, func(path, name string) error {
		file, err := add(ctx, w, path, name)
		if err == nil {
			m.Files = append(m.Files, file)
		}
		return err
	})
	if err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = w.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(data)), ModTime: m.CreatedAt})
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := errors.Join(w.Close(), z.Close(), f.Sync()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return err
	}
	return errors.Join(f.Close(), durable.Sync(filepath.Dir(to)))
}

// eachFile calls f with the path and the name of each file of a backup.
func eachFile(dir string, f func(path, name string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		err = f(path, filepath.ToSlash(rel))
		if errors.Is(err, fs.ErrNotExist) { // a symbolic link to a file that was removed
			return nil
		}
		return err
	})
}

// add writes the present content of a file, without data appended meanwhile.
func add(ctx context.Context, w *tar.Writer, path, name string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	hdr := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: info.ModTime(), Format: tar.FormatPAX}
	if err := w.WriteHeader(hdr); err != nil {
		return File{}, err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(w, sum), &reader{ctx, f}, info.Size()); err != nil {
		return File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return File{Name: name, Size: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// reader reads until ctx ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
