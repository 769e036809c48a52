package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/lease"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/sizes"
	"github.com/modbox/modbox/internal/image/verify"
)

// Images that something needs must not be removed. Functions of the owner of the store, such as
// [Options.InUse], list them; these may take locks, open databases and call the store. So the store
// calls them before it takes the lock of its index. The leases tell which images came into use
// since then.

// uses are the reasons to keep images.
type uses struct {
	at         time.Time // before the first list was made
	needed     []string  // digests, and references that are being resolved
	released   []string  // see [Options.Released]
	catalogued []string  // see [Options.Catalogued]

	// last and used are results of the leases by digest: a removal of many images asks once about each. The caller
	// calls isUsed again before it removes an image.
	last map[string]time.Time
	used map[string]bool
}

// lists are functions of the owner of the store that list images; nil lists none.
type lists struct {
	inUse, released, catalogued func(context.Context) ([]string, error)
}

// call makes the lists. The caller has no lock.
func (l lists) call(ctx context.Context) (u uses, err error) {
	if l.inUse == nil {
		return u, errors.New("list the images in use: the store has no function for that")
	}
	u.at, u.last, u.used = time.Now(), map[string]time.Time{}, map[string]bool{}
	if u.needed, err = l.inUse(ctx); err != nil {
		return u, fmt.Errorf("list the images in use: %w", err)
	}
	if l.released != nil {
		if u.released, err = l.released(ctx); err != nil {
			return u, fmt.Errorf("list the released images: %w", err)
		}
	}
	if l.catalogued != nil {
		if u.catalogued, err = l.catalogued(ctx); err != nil {
			return u, fmt.Errorf("list the images in catalogues: %w", err)
		}
	}
	return u, nil
}

// Removal removes images that nothing needs: to keep the store within its bounds, for a workspace, and for an
// administrator. Its methods are safe for concurrent use.
type Removal struct {
	index     *index.Table
	names     *names
	sizes     *sizes.Meter
	leases    *lease.Leases
	layout    archive.Layout
	files     *files
	downloads *remote.Downloads
	verifier  *verify.Verifier
	// maxDisk, lostAge and lostBytes are bounds; inUse, released and catalogued list images: see Options.
	maxDisk, lostBytes          int64
	lostAge                     time.Duration
	inUse, released, catalogued func(context.Context) ([]string, error)
	log                         *slog.Logger
}

// lockForRemoval returns the uses of images, and the index for the caller alone until unlock. It
// makes the lists again if it had to wait for the lock, so that they are as new as possible.
func (rm *Removal) lockForRemoval(ctx context.Context, l lists) (u uses, ix *index.Index, unlock func(), err error) {
	for ix == nil && err == nil {
		if u, err = l.call(ctx); err == nil {
			ix, unlock, err = rm.index.TryLock(ctx)
		}
	}
	return u, ix, unlock, err
}

// isUsed reports whether a digest is in use, or was used since the lists were made.
func (rm *Removal) isUsed(u uses, digest string) bool {
	u.used[digest] = rm.leases.Since(digest, u.at) || rm.leases.InUse(digest)
	return u.used[digest]
}

// wasUsed is isUsed, or its result before.
func (rm *Removal) wasUsed(u uses, digest string) bool {
	if used, known := u.used[digest]; known {
		return used
	}
	return rm.isUsed(u, digest)
}

// lastKnown is lastUse, or its result before.
func (rm *Removal) lastKnown(u uses, r *index.Record) time.Time {
	last, known := u.last[r.Digest]
	if !known {
		last = rm.leases.Last(r.Digest)
		u.last[r.Digest] = last
	}
	if last.After(r.UpdatedAt) {
		return last
	}
	return r.UpdatedAt
}
