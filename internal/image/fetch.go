package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Blobs that are being pulled are files in pulls/, named by their digest and repository:
// with partSuffix while they are incomplete, when they are also the lock of whoever
// fetches them. What a crash leaves is continued by the next pull. A registry that sends
// slowly, or something else, holds up nobody who asks another one; and what a repository
// gives to some, another one cannot give to others by naming it.
const partSuffix = ".part"

// partLifetime is how long blobs of pulls that nobody finished are kept.
const partLifetime = 24 * time.Hour

func (s *Store) pullsDir() string { return filepath.Join(s.dir, "pulls") }

// pullPath is where a blob of a repository is between its fetch and the pull's end.
func (s *Store) pullPath(reg *registry, blob v1.Hash) string {
	name := sha256.Sum256([]byte(reg.name()))
	return filepath.Join(s.pullsDir(), blob.Hex+"-"+hex.EncodeToString(name[:8]))
}

// fetch makes to a link to a blob with the digest and size, fetching it unless it
// is there. progress is told of each piece that comes.
func (s *Store) fetch(ctx context.Context, reg *registry, blob v1.Descriptor, to string, progress func(bytes int64)) error {
	if linked, err := s.linkFetched(reg, blob, to); linked || err != nil {
		progress(blob.Size)
		return err
	}
	done := s.pullPath(reg, blob.Digest)
	part, err := lockPart(ctx, done+partSuffix)
	if err != nil {
		return fmt.Errorf("keep blob %s: %w", blob.Digest, err)
	}
	defer part.Close()
	if linked, err := s.linkFetched(reg, blob, to); linked || err != nil {
		progress(blob.Size)
		return errors.Join(err, os.Remove(part.Name())) // somebody else has just fetched it
	}
	if err := fetchPart(ctx, reg, blob, part, progress); err != nil {
		return err
	}
	if err := errors.Join(part.Chmod(0o444), part.Sync()); err != nil {
		return fmt.Errorf("keep blob %s: %w", blob.Digest, err)
	}
	if err := os.Rename(part.Name(), done); err != nil {
		return fmt.Errorf("keep blob %s: %w", blob.Digest, err)
	}
	if _, err := linkBlob(done, to, blob.Size); err != nil {
		return fmt.Errorf("keep blob %s: %w", blob.Digest, err)
	}
	return nil
}

// linkFetched makes to a link to a blob that is there, and that who asks the registry may
// have. A pull that ends moves its blobs from the first of the two places to the second,
// so they are looked at in this order.
func (s *Store) linkFetched(reg *registry, blob v1.Descriptor, to string) (bool, error) {
	linked, err := linkBlob(s.pullPath(reg, blob.Digest), to, blob.Size)
	if linked || err != nil {
		return linked, err
	}
	if free, err := s.isFree(reg, blob.Digest.String()); err != nil || !free {
		return false, err
	}
	return linkBlob(s.blobPath(blob.Digest), to, blob.Size)
}

// isFree reports whether a layer is of an image that is everybody's, or that came from the
// repository. Of others its digest must not be enough, which is all that whoever pushed
// to the repository may know: not every registry looks whether they have the layer.
func (s *Store) isFree(reg *registry, digest string) (bool, error) {
	ix, err := s.loadIndex()
	if err != nil {
		return false, err
	}
	for i := range ix.Images {
		r := &ix.Images[i]
		same := r.Pull != nil && isOf(r.Pull.Reference, reg.name())
		if !same && (r.Name == "" || r.readers() != nil) {
			continue
		}
		layers, err := s.layersOf(r)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(layers, func(b blobSize) bool { return b.digest == digest }) {
			return true, nil
		}
	}
	return false, nil
}

// isOf reports whether a pulled reference is of a repository.
func isOf(reference, repository string) bool {
	identifier, ok := strings.CutPrefix(reference, repository)
	return ok && (strings.HasPrefix(identifier, ":") || strings.HasPrefix(identifier, "@"))
}

// linkBlob makes to another name of a file, if that is there with the size.
func linkBlob(from, to string, size int64) (bool, error) {
	info, err := os.Stat(from)
	if err != nil || info.Size() != size {
		return false, nil // it is fetched, or its size is found wrong there
	}
	if err := os.Link(from, to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // removed meanwhile
		}
		return false, err
	}
	return true, nil
}

// lockPart opens the file of an incomplete blob, which nobody else has then.
func lockPart(ctx context.Context, name string) (*os.File, error) {
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isFile(f, name) {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isFile reports whether a name still is the open file.
func isFile(f interface{ Stat() (fs.FileInfo, error) }, name string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(name)
	return err == nil && os.SameFile(open, now)
}

// fetchPart completes a blob from where its file ends and checks it. What is not
// the blob in the end is thrown away and fetched once more.
func fetchPart(ctx context.Context, reg *registry, blob v1.Descriptor, file *os.File, progress func(int64)) error {
	part, err := openPart(file, blob.Size)
	if err != nil {
		return err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = retryFirst
	tries, wrong := 0, 0
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		before := part.have
		err := part.fill(ctx, reg, blob, progress)
		if part.have > before && part.have < blob.Size {
			tries = 0 // what makes headway may fail as often as it likes
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
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s sends something else than %s", reg.repo.RegistryStr(), blob.Digest)
	}
	return reg.explain(ctx, err)
}

// errWrongBlob is the error of a complete answer that is not what was asked for.
var errWrongBlob = errors.New("it has another digest or length")

// part is the file of an incomplete blob. What is in it is hashed once, however often
// the registry breaks off.
type part struct {
	file *os.File
	sum  hash.Hash // of what the file has
	have int64     // the file's length, where its offset is
}

// openPart hashes what there is of a blob, and throws it away when that is too much.
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

// fill fetches what a blob's file lacks. The file is empty afterwards when it turned
// out to be wrong.
func (p *part) fill(ctx context.Context, reg *registry, blob v1.Descriptor, progress func(int64)) error {
	told := int64(0)
	tell := func() {
		progress(p.have - told)
		told = p.have
	}
	tell()
	if p.have < blob.Size || blob.Size == 0 {
		body, from, err := reg.open(ctx, blob, p.have)
		if err != nil {
			progress(-told)
			return err
		}
		defer body.Close()
		if from != p.have {
			if err := p.startOver(); err != nil {
				return backoff.Permanent(err)
			}
			tell()
		}
		read := readerFunc(func(buf []byte) (int, error) {
			tell() // of what was written since
			return body.Read(buf)
		})
		_, err = io.Copy(p, io.LimitReader(read, blob.Size-p.have+1))
		tell()
		if err == nil && p.have < blob.Size {
			err = fmt.Errorf("its answer ended after %d of %d bytes: %w", p.have, blob.Size, io.ErrUnexpectedEOF)
		}
		if err != nil {
			progress(-told)
			return err
		}
	}
	if p.have != blob.Size || rootfs.SHA256(p.sum) != blob.Digest {
		progress(-told)
		if err := p.startOver(); err != nil {
			return backoff.Permanent(err)
		}
		return errWrongBlob
	}
	return nil
}

// partsMax is how many bytes the blobs of pulls that failed may take, and partsShare
// which part of [Options.MaxDisk]: whoever has a registry of their own has pulls fail
// after as many bytes as they like.
const partsMax, partsShare = 16 << 30, 8

// trimParts removes blobs of pulls that failed, the oldest first, when they are too many.
func (s *Store) trimParts() {
	entries, err := os.ReadDir(s.pullsDir())
	if err != nil {
		return // what a pull needs of it has its own errors
	}
	most := int64(partsMax)
	if s.maxDisk > 0 {
		most = min(most, s.maxDisk/partsShare)
	}
	var list []fs.FileInfo
	var size int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it is finished
			list = append(list, info)
			size += info.Size()
		}
	}
	slices.SortFunc(list, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range list {
		if size <= most {
			return
		}
		removed, err := removePart(filepath.Join(s.pullsDir(), info.Name()))
		if err != nil {
			s.log.Warn("the remains of a pull that failed cannot be removed", "error", err)
		}
		if removed {
			size -= info.Size()
		}
	}
}

// removePart removes a blob unless somebody fetches it.
func removePart(name string) (removed bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !isFile(f, name) {
		return false, nil // by now the name may be another's
	}
	err = os.Remove(name)
	return err == nil, err
}

// removeOldParts removes blobs of pulls that nobody has gone on with, and returns
// their size.
func (s *Store) removeOldParts(age time.Duration) (freed int64, err error) {
	entries, err := os.ReadDir(s.pullsDir())
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < age {
			continue // it was finished meanwhile, or is new
		}
		removed, err := removePart(filepath.Join(s.pullsDir(), e.Name()))
		if removed {
			freed += info.Size()
		}
		errs = append(errs, err)
	}
	return freed, errors.Join(errs...)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
