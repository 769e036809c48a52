package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Downloads is a directory of blobs that pulls have downloaded and not used yet. A file is named
// by the digest of the blob and its repository: a slow or wrong registry delays only the pulls
// from it, and a blob that a repository gives to some callers does not reach others by the name
// of another repository. It is safe for concurrent use, also by several processes.
type Downloads struct {
	dir     string
	maxSize int64
	log     *slog.Logger
}

// partSuffix ends the name of an incomplete blob. Its file is also the lock of the download.
const partSuffix = ".part"

// lifetime is how long the blobs of unfinished pulls stay.
const lifetime = 24 * time.Hour

// NewDownloads returns the downloads in a directory that exists, of maxSize bytes at most once a
// pull has ended. It removes the blobs of pulls that did not go on within a day.
func NewDownloads(dir string, maxSize int64, log *slog.Logger) *Downloads {
	d := &Downloads{dir: dir, maxSize: maxSize, log: log}
	if _, err := d.RemoveOld(lifetime); err != nil {
		log.Warn("blobs of interrupted pulls cannot be removed", "error", err)
	}
	return d
}

// path returns the path of a complete blob of a repository.
func (d *Downloads) path(repo *Repository, blob v1.Hash) string {
	name := sha256.Sum256([]byte(repo.Name()))
	return filepath.Join(d.dir, blob.Hex+"-"+hex.EncodeToString(name[:8]))
}

// Link makes the path to another name of a blob that was downloaded from the repository, and
// reports whether there is such a blob.
func (d *Downloads) Link(repo *Repository, blob v1.Descriptor, to string) (bool, error) {
	return LinkBlob(d.path(repo, blob.Digest), to, blob.Size)
}

// Remove removes blobs of a repository after their pull.
func (d *Downloads) Remove(repo *Repository, blobs ...v1.Descriptor) {
	for _, blob := range blobs {
		_ = os.Remove(d.path(repo, blob.Digest)) // RemoveOld removes a file that stays
	}
}

// LinkBlob makes the path to another name of the file from, and reports whether there is such a
// file of the size.
func LinkBlob(from, to string, size int64) (bool, error) {
	info, err := os.Stat(from)
	if err != nil || info.Size() != size {
		return false, nil // the download finds out whether the size is wrong
	}
	if err := os.Link(from, to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // removed meanwhile
		}
		return false, err
	}
	return true, nil
}

// Download is a blob that the caller alone downloads, until the caller closes it.
type Download struct {
	repo *Repository
	blob v1.Descriptor
	file *os.File
	done string // path of the complete blob
}

// Begin waits until no other pull downloads the same blob from the repository. Callers then check
// whether another pull has completed it.
func (d *Downloads) Begin(ctx context.Context, repo *Repository, blob v1.Descriptor) (*Download, error) {
	done := d.path(repo, blob.Digest)
	file, err := lock.Open(ctx, done+partSuffix)
	if err != nil {
		return nil, fmt.Errorf("download blob %s: %w", blob.Digest, err)
	}
	return &Download{repo: repo, blob: blob, file: file, done: done}, nil
}

// Close ends the download. The next one continues where it ended.
func (d *Download) Close() error { return d.file.Close() }

// Discard removes the incomplete blob.
func (d *Download) Discard() error { return os.Remove(d.file.Name()) }

// Complete downloads the rest of the blob, checks it, and makes the path to another name of it. It
// reports each piece to progress, with a negative number for bytes that were wrong. A blob with
// another digest is downloaded once more. Errors: as [Client.Open].
func (d *Download) Complete(ctx context.Context, to string, progress func(bytes int64)) error {
	if err := d.fetch(ctx, progress); err != nil {
		return err
	}
	if err := errors.Join(d.file.Chmod(0o444), d.file.Sync()); err != nil {
		return fmt.Errorf("download blob %s: %w", d.blob.Digest, err)
	}
	if err := os.Rename(d.file.Name(), d.done); err != nil {
		return fmt.Errorf("download blob %s: %w", d.blob.Digest, err)
	}
	if _, err := LinkBlob(d.done, to, d.blob.Size); err != nil {
		return fmt.Errorf("download blob %s: %w", d.blob.Digest, err)
	}
	return nil
}

func (d *Download) fetch(ctx context.Context, progress func(int64)) error {
	part, err := openPart(d.file, d.blob.Size)
	if err != nil {
		return err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = retryFirst
	tries, wrong := 0, 0
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		before := part.have
		err := part.fill(ctx, d.repo, d.blob, progress)
		if part.have > before && part.have < d.blob.Size {
			tries = 0 // a download that makes progress may fail any number of times
		}
		if errors.Is(err, errWrongBlob) {
			wrong++
		}
		if tries++; err != nil && (tries >= retryTries || wrong > 1 || !passing(err) && !errors.Is(err, errWrongBlob)) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	if errors.Is(err, errWrongBlob) {
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s sends something else than %s", d.repo.repo.RegistryStr(), d.blob.Digest)
	}
	return d.repo.explain(ctx, err)
}

// errWrongBlob is the error of a complete answer that is not the requested blob.
var errWrongBlob = errors.New("it has another digest or length")

// part is the file of an incomplete blob. Each byte is hashed once, however often the registry
// breaks off.
type part struct {
	file *os.File
	sum  hash.Hash // of the file
	have int64     // length of the file, and its offset
}

// openPart hashes the content of an incomplete blob, and discards it if it is too long.
func openPart(file *os.File, size int64) (*part, error) {
	p := &part{file: file, sum: sha256.New()}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var err error
	if p.have, err = io.Copy(p.sum, file); err == nil && p.have > size {
		err = p.startOver()
	}
	return p, err
}

// Write adds to the file.
func (p *part) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	p.sum.Write(data[:n])
	p.have += int64(n)
	return n, err
}

func (p *part) startOver() error {
	p.sum, p.have = sha256.New(), 0
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

// fill downloads the missing bytes of a blob. It empties the file if the blob is wrong.
func (p *part) fill(ctx context.Context, repo *Repository, blob v1.Descriptor, progress func(int64)) error {
	reported := int64(0)
	report := func() {
		progress(p.have - reported)
		reported = p.have
	}
	report()
	if p.have < blob.Size || blob.Size == 0 {
		body, from, err := repo.open(ctx, blob, p.have)
		if err != nil {
			progress(-reported)
			return err
		}
		defer body.Close()
		if from != p.have {
			if err := p.startOver(); err != nil {
				return backoff.Permanent(err)
			}
			report()
		}
		read := readerFunc(func(buf []byte) (int, error) {
			report() // the bytes written since
			return body.Read(buf)
		})
		_, err = io.Copy(p, io.LimitReader(read, blob.Size-p.have+1))
		report()
		if err == nil && p.have < blob.Size {
			err = fmt.Errorf("its answer ended after %d of %d bytes: %w", p.have, blob.Size, io.ErrUnexpectedEOF)
		}
		if err != nil {
			progress(-reported)
			return err
		}
	}
	if p.have != blob.Size || rootfs.SHA256(p.sum) != blob.Digest {
		progress(-reported)
		if err := p.startOver(); err != nil {
			return backoff.Permanent(err)
		}
		return errWrongBlob
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Trim removes blobs of failed pulls, the oldest first, until the others have the maximum size.
// The owner of a registry can make pulls fail after any number of bytes.
func (d *Downloads) Trim() {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return // a pull reports its own errors about the directory
	}
	var list []fs.FileInfo
	var size int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it is complete by now
			list = append(list, info)
			size += info.Size()
		}
	}
	slices.SortFunc(list, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range list {
		if size <= d.maxSize {
			return
		}
		removed, err := lock.RemoveFree(filepath.Join(d.dir, info.Name()))
		if err != nil {
			d.log.Warn("blobs of a failed pull cannot be removed", "error", err)
		}
		if removed {
			size -= info.Size()
		}
	}
}

// RemoveOld removes the blobs that are at least as old as age and that no pull downloads, and
// returns their size.
func (d *Downloads) RemoveOld(age time.Duration) (freed int64, err error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < age {
			continue // complete by now, or new
		}
		removed, err := lock.RemoveFree(filepath.Join(d.dir, e.Name()))
		if removed {
			freed += info.Size()
		}
		errs = append(errs, err)
	}
	return freed, errors.Join(errs...)
}
