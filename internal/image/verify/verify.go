// Package verify checks the root filesystems of an image store against their digests before they are used.
package verify

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sync/singleflight"
)

// Verifier checks root filesystems against their digests, each once since the host booted. It is safe for
// concurrent use.
type Verifier struct {
	index   *index.Table
	path    func(digest string) string
	checked *integrity.Records // the root filesystems that were verified since the host booted

	mu       sync.Mutex
	verified map[string]bool // guarded by mu; digests whose file was checked by this Store

	verifying singleflight.Group // by digest
}

// New returns the verifier of the root filesystems in an index. path returns the file of a digest; checked records
// what was verified, and outlives the process.
func New(table *index.Table, path func(digest string) string, checked *integrity.Records) *Verifier {
	return &Verifier{index: table, path: path, checked: checked, verified: map[string]bool{}}
}

// Written records that the file of a digest was hashed when it was written, a moment ago.
func (v *Verifier) Written(digest string) {
	v.mu.Lock()
	v.verified[digest] = true
	v.mu.Unlock()
	v.checked.Written(digest, v.path(digest))
}

// Verify checks the files of the record's root filesystem and of all below it, unless they were verified since the host booted. It moves a damaged file aside, so that nothing uses
// it. Errors: Unavailable for a missing or damaged file.
func (v *Verifier) Verify(ctx context.Context, rec *index.Record) error {
	if err := v.verifyFile(ctx, rec); err != nil || len(rec.Below) == 0 {
		return err
	}
	ix, err := v.index.Load()
	if err != nil {
		return err
	}
	for _, digest := range rec.Below {
		below := ix.ByDigest(digest)
		if below == nil {
			return sandbox.Errorf(sandbox.Unavailable, "%s needs the root filesystem %s, which is missing", rec.Title(), digest)
		}
		if err := v.verifyFile(ctx, below); err != nil {
			return sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain(rec.Title()+" is unusable without what lies below it", err))
		}
	}
	return nil
}

// verifyFile checks the record's file against its digest, unless a Store of this directory did since the
// host booted. It moves a damaged file aside, so that nothing uses it.
func (v *Verifier) verifyFile(ctx context.Context, rec *index.Record) error {
	name := v.path(rec.Digest)
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

// All verifies every root filesystem of the index. It returns the errors of [Verifier.Verify], joined.
func (v *Verifier) All(ctx context.Context) error {
	ix, err := v.index.Load()
	if err != nil {
		return err
	}
	var errs []error
	for i := range ix.Images {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, v.Verify(ctx, &ix.Images[i]))
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
