// Package verify checks the root filesystems of an image store against their digests before they are used.
package verify

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sharedcall"
	"golang.org/x/sync/singleflight"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// Verifier checks root filesystems against their digests, each once since the host booted, and fetches missing files of
// images from an object store. It is safe for concurrent use.
type Verifier struct {
	Files
	work    func(context.Context) (dir string, undo cleanup.Cleanup, err error)
	checked *integrity.Records
	away    Away

	mu       sync.Mutex
	verified map[string]bool // guarded by mu; digests whose file was checked by this Store

	verifying singleflight.Group       // by digest
	fetching  sharedcall.Group[string] // by digest
}

// Files are the files of images.
type Files struct {
	Index  *index.Table
	Layout archive.Layout
	// Path returns the file of the root filesystem with a digest.
	Path func(digest string) string
}

// Options are the parts of a [Verifier] beside the files.
type Options struct {
	// Work makes a directory for a file that is being fetched, which undo removes.
	Work func(context.Context) (dir string, undo cleanup.Cleanup, err error)
	// Checked are the root filesystems that were verified since the host booted. It outlives the process.
	Checked *integrity.Records
	// Away has the files that are in an object store; nil is none.
	Away Away
}

// New returns the verifier of the root filesystems in an index.
func New(files Files, o Options) *Verifier {
	return &Verifier{Files: files, work: o.Work, checked: o.Checked, away: o.Away, verified: map[string]bool{}}
}

// Written records that the file of a digest was hashed when it was written, a moment ago.
func (v *Verifier) Written(digest string) {
	v.mu.Lock()
	v.verified[digest] = true
	v.mu.Unlock()
	v.checked.Written(digest, v.Path(digest))
}

// Verify checks the files of the record's root filesystem and of all below it, unless they were verified since the host booted. It moves a damaged file aside, so that nothing uses
// it, and fetches missing files. Errors: Unavailable for a missing or damaged file; DiskFull.
func (v *Verifier) Verify(ctx context.Context, rec *index.Record) error {
	if err := v.verifyFile(ctx, rec); err != nil || len(rec.Below) == 0 {
		return err
	}
	ix, err := v.Index.Load()
	if err != nil {
		return err
	}
	for _, digest := range rec.Below {
		below := ix.ByDigest(digest)
		if below == nil {
			return sandbox.Errorf(sandbox.Unavailable, "%s needs the root filesystem %s, which is missing", rec.Title(), digest)
		}
		if err := v.verifyFile(ctx, below); sandbox.CodeOf(err) == sandbox.DiskFull {
			return err
		} else if err != nil {
			return sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain(rec.Title()+" is unusable without what lies below it", err))
		}
	}
	return nil
}

// verifyFile is Verify for the record's file alone.
func (v *Verifier) verifyFile(ctx context.Context, rec *index.Record) error {
	err := v.Check(ctx, rec)
	if err == nil || !v.isAway(rec.Digest, v.Path(rec.Digest)) {
		return err
	}
	if err := v.fetch(ctx, rec); err != nil {
		return notFetched(ctx, "the root filesystem of "+rec.Title(), err)
	}
	return v.Check(ctx, rec)
}

// Check checks the record's file against its digest, unless a Store of this directory did since the
// host booted. It moves a damaged file aside, so that nothing uses it. Errors: Unavailable for a missing or damaged file.
func (v *Verifier) Check(ctx context.Context, rec *index.Record) error {
	name := v.Path(rec.Digest)
	v.mu.Lock()
	done := v.verified[rec.Digest]
	v.mu.Unlock()
	if done && Untouched(name, rec) {
		return nil
	}
	_, err, _ := v.verifying.Do(rec.Digest, func() (any, error) {
		// All waiters share the result, so the context of none of them ends the work.
		err := v.checked.Check(rec.Digest, name, func() (string, error) {
			digest, _, err := rootfs.Digest(context.WithoutCancel(ctx), name, rec.Mark)
			return digest, err
		})
		if damaged := (*integrity.DamagedError)(nil); errors.As(err, &damaged) {
			err = errors.Join(err, os.Rename(name, name+".damaged"))
		}
		v.mu.Lock()
		v.verified[rec.Digest] = err == nil
		v.mu.Unlock()
		return nil, err
	})
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the root filesystem of %s is missing or damaged; %s", rec.Title(), rec.Remedy())
	}
	return nil
}

// Untouched reports whether the record's file has the size and time with which it was written. That
// is no proof, but finds every ordinary accident at no cost.
func Untouched(name string, rec *index.Record) bool {
	info, err := os.Stat(name)
	return err == nil && info.Size() == rec.SizeBytes && info.ModTime().Equal(rec.ModTime())
}

// All checks every root filesystem of the index that is on the disk, or nowhere else. It returns the errors of [Verifier.Check], joined.
func (v *Verifier) All(ctx context.Context) error {
	ix, err := v.Index.Load()
	if err != nil {
		return err
	}
	var errs []error
	for i := range ix.Images {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r := &ix.Images[i]; !v.isAway(r.Digest, v.Path(r.Digest)) {
			errs = append(errs, v.Check(ctx, r))
		}
	}
	return errors.Join(append(errs, v.Prune(ix))...)
}

// Prune forgets the root filesystems that are not in the index. The caller has the index's lock, or is the only user
// of the store: otherwise a root filesystem that is being added may be read again. Errors: the file system's.
func (v *Verifier) Prune(ix *index.Index) error {
	have := func(digest string) bool { return ix.ByDigest(digest) != nil }
	v.mu.Lock()
	maps.DeleteFunc(v.verified, func(digest string, _ bool) bool { return !have(digest) })
	v.mu.Unlock()
	return v.checked.Prune(have)
}
