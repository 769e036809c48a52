package imagearchive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/object"
)

// carer releases and removes files that no image needs. A single goroutine uses it.
type carer struct {
	s      *Service
	files  verify.Files
	seen   index.Generation
	looked time.Time
	swept  time.Time
	known  manifests
}

// care releases files, removes the files whose time is over, and sweeps now and then. A file that is released stays until the next call at least, which
// takes it back first if an image needs it: the index may have changed while this call read it.
func (c *carer) care(ctx context.Context) {
	if c.s.deps.Owner.Part() != "" {
		if err := c.s.readDamage(ctx); err != nil {
			c.s.failed(ctx, "the records of stored images cannot be read", err)
		}
	}
	due := c.s.due(time.Now().Add(-c.s.cfg.Grace))
	if len(due) > 0 {
		c.looked = time.Time{} // archived sandboxes may need files though the index is the same
	}
	if err := c.release(ctx); err != nil {
		c.s.failed(ctx, "the stored files that images need cannot be listed", err)
	} else if err := c.s.removeAll(ctx, due); err != nil {
		c.s.failed(ctx, "stored files of removed images not removed", err)
	}
	if time.Since(c.swept) >= sweepEvery {
		c.swept = time.Now()
		if err := c.s.Sweep(ctx, time.Now().Add(-sweepAge)); err != nil {
			c.s.failed(ctx, "stored images not swept", err)
		}
	}
}

// release records which files no image needs any more, and which images need again, if the index has changed, and now and then.
func (c *carer) release(ctx context.Context) error {
	now, err := c.files.Index.Generation()
	if err != nil || now.Same(c.seen) && time.Since(c.looked) < sweepEvery {
		return err
	}
	needed, err := c.s.deps.Needed(ctx)
	if err != nil {
		return err
	}
	ix, err := c.files.Index.Load()
	if err != nil {
		return err
	}
	list := wanted(ix, append(needed, c.alone(ix)...))
	c.known.keep(list)
	reached, err := reach(list, &c.known)
	if errors.Is(err, fs.ErrNotExist) {
		if later, lerr := c.files.Index.Generation(); lerr == nil && !later.Same(now) {
			return nil // the image was removed meanwhile
		}
	}
	if err != nil {
		return err
	}
	if err := c.s.release(ctx, reached); err != nil {
		return err
	}
	c.seen, c.looked = now, time.Now()
	return nil
}

// alone returns the digests of images with a file that only the object store has. A sandbox on a worker may run such an image, and a pull cannot bring
// it back if its tag has moved to another image since.
func (c *carer) alone(ix *index.Index) (digests []string) {
	isAway := func(digest, name string) bool {
		if !c.s.Has(digest) {
			return false
		}
		_, err := os.Lstat(name)
		return errors.Is(err, fs.ErrNotExist)
	}
	for i := range ix.Images {
		r := &ix.Images[i]
		if isMade(r) || !c.s.Has(r.Digest) {
			continue
		}
		list, err := blobs(c.files, r)
		if err != nil || isAway(r.Digest, c.files.Path(r.Digest)) || slices.ContainsFunc(list, func(b v1.Descriptor) bool { return isAway(b.Digest.String(), c.files.Layout.Blob(b.Digest)) }) {
			digests = append(digests, r.Digest)
		}
	}
	return digests
}

// readDamage reads which files other servers have found damaged.
func (s *Service) readDamage(ctx context.Context) error {
	list, err := s.deps.Records.All(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range list {
		if known, has := s.stored[f.Digest]; has && known.DamagedAt.IsZero() {
			known.DamagedAt = f.DamagedAt
			s.stored[f.Digest] = known
		}
	}
	return nil
}

// release records which files are needed.
func (s *Service) release(ctx context.Context, needed map[string]bool) error {
	var off, on []string
	s.mu.Lock()
	for digest, f := range s.stored {
		switch free := f.ReleasedAt.IsZero(); {
		case free && !needed[digest]:
			off = append(off, digest)
		case !free && needed[digest]:
			on = append(on, digest)
		}
	}
	s.mu.Unlock()
	if err := s.mark(ctx, on, time.Time{}); err != nil {
		return err
	}
	return s.mark(ctx, off, time.Now().UTC())
}

// mark records that no image needs files since a time, or with the zero time that images need them.
func (s *Service) mark(ctx context.Context, digests []string, at time.Time) error {
	if len(digests) == 0 {
		return nil
	}
	if err := s.deps.Records.Release(ctx, digests, at); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, digest := range digests {
		if f, has := s.stored[digest]; has {
			f.ReleasedAt = at
			s.stored[digest] = f
		}
	}
	return nil
}

// removeAll removes released files.
func (s *Service) removeAll(ctx context.Context, list []index.StoredFile) error {
	var g errgroup.Group
	g.SetLimit(removers)
	for _, f := range list {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return s.remove(ctx, f) })
	}
	return g.Wait()
}

// remove removes a released file: its record, and then its objects, unless another file has its content. Objects that another installation has
// stored stay: a restored copy of a server has records of files that the server itself still needs.
func (s *Service) remove(ctx context.Context, f index.StoredFile) error {
	release, ok := s.lock([]string{lockName(&f)}, nil)
	if !ok {
		return nil // a later call removes it
	}
	defer release()
	if now, has := s.find(f.Digest); !has || now.ReleasedAt.IsZero() { // an image needs it again
		return nil
	}
	objects, err := s.objects.Open(ctx, false) // first: without it the objects would stay for a day
	if err != nil {
		return err
	}
	if err := s.deps.Records.Forget(ctx, f.Digest); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.stored, f.Digest)
	s.mu.Unlock()
	if f.Content == "" || f.By != s.cfg.Installation || s.hasContent(f.Content) {
		return nil
	}
	return objects.DeleteParts(ctx, nameOf(f.By, f.Content))
}

// Sweep removes the objects of this installation that were written before a time and are of no record.
func (s *Service) Sweep(ctx context.Context, before time.Time) error {
	used, err := s.deps.Used(ctx)
	if err != nil {
		return err
	}
	objects, err := s.objects.Open(ctx, false)
	if err != nil && !used { // there may be no store yet
		return nil
	}
	if err != nil {
		return err
	}
	known, found := map[string]bool{}, map[string][]string{} // contents, and keys by content
	s.mu.Lock()
	for _, f := range s.stored {
		known[f.Content] = true
	}
	s.mu.Unlock()
	if err := objects.List(ctx, folder(s.cfg.Installation), func(o object.Object) error {
		if content, _, ok := strings.Cut(path.Base(o.Key), "."); ok && o.At.Before(before) && !known[content] {
			found[content] = append(found[content], o.Key)
		}
		return nil
	}); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(removers)
	for content, keys := range found {
		g.Go(func() error {
			release, ok := s.lock([]string{content}, nil) // an upload uses the parts that are there
			if !ok {
				return nil
			}
			defer release()
			if s.hasContent(content) {
				return nil
			}
			if err := s.deps.Confirm(ctx); err != nil { // a successor may have recorded the parts
				return err
			}
			return objects.DeleteAll(ctx, keys)
		})
	}
	return g.Wait()
}
