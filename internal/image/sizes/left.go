package sizes

import (
	"slices"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// Left is the build cache of a workspace, while images leave it.
type Left struct {
	Bytes  int64
	Images int

	counter counter        // has seen what does not count for the cache
	names   map[string]int // how many images of the cache need something that counts for it
}

// Left returns the build cache of a workspace in an index, which may change afterwards.
func (z *Meter) Left(ix *index.Index, owner sandbox.WorkspaceID) (*Left, error) {
	c := z.counter(&index.Index{Images: slices.Clone(ix.Images)}, owner)
	if _, err := c.images(); err != nil {
		return nil, err
	}
	l := &Left{counter: c, names: map[string]int{}}
	for i := range c.index.Images {
		if r := &c.index.Images[i]; c.isLeft(r) {
			l.Images++
			if err := l.count(r, 1); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// Remove subtracts what only an image of the cache has. If other workspaces also use it, the workspace has
// what it consists of for nothing from then on.
func (l *Left) Remove(r *index.Record) error {
	l.Images--
	if err := l.count(r, -1); err != nil || len(r.Payers()) < 2 {
		return err
	}
	blobs, err := l.counter.meter.BlobsOf(r)
	for _, b := range append(blobs[:len(blobs):len(blobs)], Blob{r.File(), r.SizeBytes}) {
		if l.names[b.Digest] > 0 {
			l.Bytes -= b.Size
		}
		l.counter.seen[b.Digest] = true
	}
	l.counter.seen[r.Digest] = true
	return err
}

// count adds an image to the cache, or removes it if by is -1.
func (l *Left) count(r *index.Record, by int) error {
	blobs, err := l.counter.meter.BlobsOf(r)
	if err != nil {
		return err
	}
	name := func(name string, bytes int64) {
		if l.counter.seen[name] {
			return
		}
		before := l.names[name]
		if l.names[name] = before + by; before == 0 || before+by == 0 {
			l.Bytes += int64(by) * bytes
		}
	}
	counted, others := l.counter.roots.Below(r)
	for _, file := range append(counted, r) {
		if !l.counter.seen[file.Digest] {
			name(file.File(), file.SizeBytes)
		}
	}
	for _, below := range others {
		name(below.File(), below.SizeBytes)
	}
	for _, b := range blobs {
		name(b.Digest, b.Size)
	}
	return nil
}
