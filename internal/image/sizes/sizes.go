// Package sizes measures how much disk the images of a store take: of each workspace, and together.
package sizes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// Meter measures the images of a store. It is safe for concurrent use.
type Meter struct {
	index  *index.Table
	layout archive.Layout

	mu     sync.Mutex
	owned  ownedCache         // guarded by mu
	layers map[v1.Hash][]Blob // guarded by mu; of the OCI images with those manifests
	blobs  int                // guarded by mu; how many were added to layers
}

// NewMeter returns the meter of the images in an index and a layout.
func NewMeter(ix *index.Table, layout archive.Layout) *Meter {
	return &Meter{index: ix, layout: layout, layers: map[v1.Hash][]Blob{}}
}

// Owned is the disk space of a workspace's builds, each file counted once.
type Owned struct {
	// Images is the images with a name, with all below them that counts for the workspace. Left is the
	// build cache, of which Images has no part.
	Images, Left int64
}

// Of returns the disk space of a workspace's builds.
func (z *Meter) Of(owner sandbox.WorkspaceID) (Owned, error) {
	for {
		ix, err := z.index.Load()
		if err != nil {
			return Owned{}, err
		}
		have, err := z.ownedNow(ix, owner)
		if err == nil {
			return have, nil
		}
		if now, lerr := z.index.Load(); lerr != nil || now == ix {
			return Owned{}, err
		} // otherwise the image was removed meanwhile
	}
}

// ownedNow is In for the index that was loaded last.
func (z *Meter) ownedNow(ix *index.Index, owner sandbox.WorkspaceID) (have Owned, err error) {
	z.mu.Lock()
	if z.owned.of != ix {
		z.owned.of, z.owned.by = ix, map[sandbox.WorkspaceID]Owned{}
	}
	known, ok := z.owned.by[owner]
	z.mu.Unlock()
	if ok {
		return known, nil
	}
	if have, err = z.In(ix, owner); err != nil {
		return Owned{}, err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.owned.of == ix {
		z.owned.by[owner] = have
	}
	return have, nil
}

// ownedCache is the result of Owned for an index.
type ownedCache struct {
	of *index.Index
	by map[sandbox.WorkspaceID]Owned
}

// In is Of for an index.
func (z *Meter) In(ix *index.Index, owner sandbox.WorkspaceID) (Owned, error) {
	mine := func(r index.Record) bool { return r.CountsFor(owner) }
	if !slices.ContainsFunc(ix.Images, mine) {
		return Owned{}, nil
	}
	c := z.counter(ix, owner)
	images, err := c.images()
	if err != nil {
		return Owned{}, err
	}
	left, err := c.count(c.isLeft)
	return Owned{images, left}, err
}

// counter counts the bytes of images for a workspace.
type counter struct {
	meter *Meter
	index *index.Index
	roots index.Roots
	owner sandbox.WorkspaceID
	seen  map[string]bool // digests and files that were counted, or belong to others
}

func (z *Meter) counter(ix *index.Index, owner sandbox.WorkspaceID) counter {
	return counter{meter: z, index: ix, roots: ix.Roots(owner), owner: owner, seen: map[string]bool{}}
}

// images returns the bytes of the images with a name.
func (c *counter) images() (int64, error) {
	if _, err := c.count(func(r *index.Record) bool { return r.Owner == "" && !c.roots.Counts(r) }); err != nil {
		return 0, err
	}
	return c.count(func(r *index.Record) bool { return r.Owner == c.owner && r.Current })
}

// isLeft reports whether an image is in the build cache.
func (c *counter) isLeft(r *index.Record) bool { return c.roots.Counts(r) && !r.Current }

// count returns the bytes that the images of which chosen is true add to those counted before.
func (c *counter) count(chosen func(*index.Record) bool) (n int64, err error) {
	for i := range c.index.Images {
		r := &c.index.Images[i]
		if !chosen(r) {
			continue
		}
		blobs, err := c.meter.BlobsOf(r)
		if err != nil {
			return 0, err
		}
		counted, others := c.roots.Below(r)
		for _, below := range counted {
			n += c.file(below)
		}
		for _, below := range others {
			n += c.once(below.File(), below.SizeBytes)
		}
		n += c.file(r)
		for _, b := range blobs {
			n += c.once(b.Digest, b.Size)
		}
	}
	return n, nil
}

// file counts the file of a root filesystem. A finished image and its last layer are two root filesystems
// with one file; it counts for a workspace even if other workspaces have it.
func (c *counter) file(r *index.Record) int64 {
	if c.roots.Counts(r) {
		if c.seen[r.File()] {
			c.seen[r.Digest] = true
			return 0
		}
		c.seen[r.File()] = true
	}
	return c.once(r.Digest, r.SizeBytes)
}

// once returns the bytes of something that was not counted before.
func (c *counter) once(what string, bytes int64) int64 {
	if c.seen[what] {
		return 0
	}
	c.seen[what] = true
	return bytes
}

// Blob is a file of an OCI image with its size.
type Blob struct {
	Digest string
	Size   int64
}

// blobsKnown bounds the blobs of images in memory.
const blobsKnown = 200_000

// BlobsOf returns the blobs of a record's OCI image: layers, configuration and manifest.
func (z *Meter) BlobsOf(r *index.Record) ([]Blob, error) {
	z.mu.Lock()
	layers, known := z.layers[r.Manifest.Digest]
	z.mu.Unlock()
	if known {
		return layers, nil
	}
	manifest, err := z.manifestOf(r)
	if err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		layers = append(layers, Blob{l.Digest.String(), l.Size})
	}
	layers = append(layers, Blob{manifest.Config.Digest.String(), manifest.Config.Size}, Blob{r.Manifest.Digest.String(), r.Manifest.Size})
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.blobs += len(layers); z.blobs > blobsKnown {
		clear(z.layers)
		z.blobs = len(layers)
	}
	z.layers[r.Manifest.Digest] = layers
	return layers, nil
}

// manifestOf returns the manifest of a record's OCI image.
func (z *Meter) manifestOf(r *index.Record) (*v1.Manifest, error) {
	manifest, err := z.layout.Manifest(r.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", r.Ref(), err)
	}
	return manifest, nil
}

// IsOver reports whether the store has more than maxBytes.
func (z *Meter) IsOver(ctx context.Context, maxBytes int64) (bool, error) {
	ix, unlock, err := z.index.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	size, err := z.Total(ix)
	return size > maxBytes, err
}

// Sum is the bytes of everything that an index names, while records are removed.
type Sum struct {
	meter *Meter
	Bytes int64
	names map[string]int // how many records have a file or a blob
}

// Sum returns the sum of an index.
func (z *Meter) Sum(ix *index.Index) (*Sum, error) {
	s := &Sum{meter: z, names: map[string]int{}}
	for i := range ix.Images {
		if err := s.count(&ix.Images[i], 1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Remove subtracts what only a record has.
func (s *Sum) Remove(r *index.Record) error { return s.count(r, -1) }

// count adds a record, or removes it if by is -1.
func (s *Sum) count(r *index.Record, by int) error {
	blobs, err := s.meter.BlobsOf(r)
	if err != nil {
		return err
	}
	name := func(name string, bytes int64) {
		before := s.names[name]
		if s.names[name] = before + by; before == 0 || before+by == 0 {
			s.Bytes += int64(by) * bytes
		}
	}
	name(r.File(), r.SizeBytes)
	for _, b := range blobs {
		name(b.Digest, b.Size)
	}
	return nil
}

// Total returns the bytes of everything that an index names.
func (z *Meter) Total(ix *index.Index) (int64, error) {
	sum, err := z.Sum(ix)
	if err != nil {
		return 0, err
	}
	return sum.Bytes, nil
}

// LiveBlobs returns the names of the layout's blobs that the index needs.
func (z *Meter) LiveBlobs(ix *index.Index) (map[string]bool, error) {
	live := map[string]bool{}
	for _, rec := range ix.Images {
		blobs, err := z.BlobsOf(&rec)
		if err != nil {
			return nil, err
		}
		for _, b := range blobs {
			live[strings.TrimPrefix(b.Digest, "sha256:")] = true
		}
	}
	return live, nil
}
