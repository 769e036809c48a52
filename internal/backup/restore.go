package backup

import (
	"archive/tar"
	"bytes"
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
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// RestoreOptions are options of a restore.
type RestoreOptions struct {
	// Force permits to set aside the present content of the state directory.
	Force bool
	// KeepImages leaves the images of the state directory unchanged.
	KeepImages bool
	// Prepare migrates the unpacked database for this program, or returns why it cannot.
	Prepare func(ctx context.Context, database string) error

	free func(dir string) (ballast.Space, error) // of tests; nil for ballast.Free
}

// Check reads a whole backup and compares it with its manifest. Errors: Invalid when it is damaged
// or not a backup.
func Check(ctx context.Context, file string) (Manifest, error) {
	return unpack(ctx, file, "", RestoreOptions{})
}

// Restore replaces the content of the state directory by a backup, and returns the directory of the
// previous content, "" when there was none. No server may use the directory. file may also be a
// copy of a database, which replaces nothing else. Nothing is changed until everything is unpacked
// and verified.
//
// Errors: Invalid when the backup is damaged; Conflict when the directory is in use and Force is
// not set; DiskFull when the disk has no space for it.
func Restore(ctx context.Context, file, stateDir string, o RestoreOptions) (m Manifest, aside string, err error) {
	only, err := isDatabase(file)
	if err != nil {
		return m, "", fmt.Errorf("restore: %w", err)
	}
	aside, err = replace(ctx, stateDir, o, only, func(staged string) (tops []string, err error) {
		if only {
			m, err = copyDatabase(ctx, file, staged, o)
		} else {
			m, err = unpack(ctx, file, staged, o)
		}
		return m.tops(), err
	})
	return m, aside, err
}

// replace replaces the content of the state directory, or only its database, by what unpack writes to a new directory;
// unpack returns the names there.
func replace(ctx context.Context, stateDir string, o RestoreOptions, only bool, unpack func(staged string) (tops []string, err error)) (aside string, err error) {
	if err := Finish(stateDir); err != nil { // of an earlier restore
		return "", err
	}
	staged := filepath.Join(stateDir, restoreDir, "new")
	defer func() { err = errors.Join(err, discard(stateDir)) }()
	if err := os.MkdirAll(staged, 0o700); err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	replaced := slices.Clone(managed)
	if only {
		replaced = []string{Database, Database + "-wal", Database + "-shm"}
	}
	if o.KeepImages {
		replaced = slices.DeleteFunc(replaced, func(name string) bool { return name == images })
	}
	if err := mayReplace(stateDir, replaced, o.Force); err != nil {
		return "", err
	}
	tops, err := unpack(staged)
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(filepath.Join(staged, Database)); err != nil || !info.Mode().IsRegular() {
		return "", sandbox.Errorf(sandbox.Invalid, "the backup has no database; nothing was changed")
	}
	if !slices.Contains(tops, images) { // existing images are better than none
		replaced = slices.DeleteFunc(replaced, func(name string) bool { return name == images })
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, filepath.Join(staged, Database)); err != nil {
			return "", fmt.Errorf("restore: the database of the backup: %w", err)
		}
	}
	if aside, err = commit(stateDir, staged, replaced); err != nil {
		return "", fmt.Errorf("restore: %w", err)
	}
	return aside, nil
}

// mayReplace returns an error unless names of the state directory may be set aside: Force is set,
// and renaming them is possible.
func mayReplace(stateDir string, names []string, force bool) error {
	var dir unix.Stat_t
	if err := unix.Stat(stateDir, &dir); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(stateDir, name)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if st.Dev != dir.Dev {
			return sandbox.Errorf(sandbox.Conflict, "%s is a file system of its own, which cannot be set aside: unmount it", path)
		}
		if !force {
			return sandbox.Errorf(sandbox.Conflict, "the state directory %s is in use: it contains %s. Choose another directory, or use --force, which sets its content aside", stateDir, name)
		}
	}
	return nil
}

// isDatabase reports whether a file is a database and not a backup.
func isDatabase(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, 16)
	_, err = io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return bytes.Equal(head, []byte("SQLite format 3\x00")), err
}

func copyDatabase(ctx context.Context, file, to string, o RestoreOptions) (Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return Manifest{}, fmt.Errorf("restore: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return Manifest{}, fmt.Errorf("restore: %w", err)
	}
	var need need
	need.add(info.Size())
	have, err := o.space(to)
	if err == nil {
		err = need.check(have, to)
	}
	if err != nil {
		return Manifest{}, err
	}
	hdr := &tar.Header{Name: Database, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime()}
	got, err := extract(&reader{ctx, f}, hdr, to)
	if err != nil {
		return Manifest{}, fmt.Errorf("restore: %w", err)
	}
	return Manifest{CreatedAt: info.ModTime(), Files: []File{got}}, nil
}

// unpack writes the files of a backup that a restore needs into to, unless that is "", and verifies all files. When they need more space
// than there is, it goes on without writing, because the size of all is only known at the end. Errors: Invalid, DiskFull.
func unpack(ctx context.Context, file, to string, o RestoreOptions) (Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return Manifest{}, fmt.Errorf("open backup: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return Manifest{}, fmt.Errorf("open backup: %w", err)
	}
	defer z.Close()
	var have ballast.Space
	if to != "" {
		if have, err = o.space(to); err != nil {
			return Manifest{}, err
		}
	}
	var need need
	var files []File
	var m *Manifest
	for r := tar.NewReader(&reader{ctx, z}); ; {
		hdr, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			whole, err := verified(file, m, files)
			if err == nil && to != "" {
				err = need.check(have, to)
			}
			return whole, err
		case ctx.Err() != nil:
			return Manifest{}, context.Cause(ctx)
		case err != nil:
			return Manifest{}, damaged(file, err)
		case m != nil:
			return Manifest{}, damaged(file, errors.New("it has more data after its manifest"))
		case hdr.Name == manifestName:
			m = &Manifest{}
			if err := json.NewDecoder(io.LimitReader(r, manifestMax)).Decode(m); err != nil {
				return Manifest{}, damaged(file, err)
			}
			continue
		case hdr.Typeflag != tar.TypeReg:
			return Manifest{}, damaged(file, fmt.Errorf("%q is not a regular file", hdr.Name))
		}
		if err := checkName(hdr.Name); err != nil {
			return Manifest{}, damaged(file, err)
		}
		into := "" // nowhere
		if !o.leavesOut(hdr.Name) {
			if into, err = need.place(hdr.Size, have, to); err != nil {
				return Manifest{}, err
			}
		}
		got, err := extract(r, hdr, into)
		var local *fs.PathError
		if errors.As(err, &local) && ctx.Err() == nil { // writing it here failed, as on a full disk
			return Manifest{}, fmt.Errorf("unpack %s: %w", file, err)
		} else if err != nil {
			return Manifest{}, errors.Join(context.Cause(ctx), damaged(file, err))
		}
		files = append(files, got)
	}
}

// verified compares the files of a backup with its manifest.
func verified(file string, m *Manifest, files []File) (Manifest, error) {
	switch {
	case m == nil:
		return Manifest{}, damaged(file, errors.New("it has no manifest at its end"))
	case m.Format != manifestFormat:
		return Manifest{}, sandbox.Errorf(sandbox.Unsupported, "%s is of format %d, this program supports %d", file, m.Format, manifestFormat)
	case !slices.Equal(m.Files, files):
		for i, want := range m.Files {
			if i >= len(files) || files[i] != want {
				return Manifest{}, damaged(file, fmt.Errorf("%q has been changed", want.Name))
			}
		}
		return Manifest{}, damaged(file, errors.New("it has more files than its manifest"))
	}
	return *m, nil
}

// extract writes a file into dir, unless that is "", and returns its description.
func extract(r io.Reader, hdr *tar.Header, dir string) (_ File, err error) {
	sum := sha256.New()
	into := io.Writer(sum)
	if dir != "" {
		name := filepath.Join(dir, filepath.FromSlash(hdr.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return File{}, err
		}
		// No mode gives others more permissions than the owner's umask permits.
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(hdr.Mode)&0o700|0o400)
		if err != nil {
			return File{}, err
		}
		defer func() {
			err = errors.Join(err, f.Close())
			if err == nil {
				err = os.Chtimes(name, hdr.ModTime, hdr.ModTime)
			}
		}()
		into = io.MultiWriter(f, sum)
	}
	n, err := io.Copy(into, r)
	return File{Name: hdr.Name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// asideName is the name of the directory for the state before a restore.
func asideName(now time.Time) string { return "before-restore-" + now.UTC().Format(stamp) }

// Hint tells the user what to do with the directory that was set aside.
func Hint(aside string) string {
	return strings.TrimSpace("The previous content is in " + aside + "; remove it when it is not needed any more.")
}
