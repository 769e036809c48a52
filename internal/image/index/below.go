package index

import (
	"slices"

	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// Below returns the digests of the root filesystems that lie below a record that keep accepts, and of the chains whose
// files such a record has; nil accepts all.
func (ix *Index) Below(keep func(*Record) bool) map[string]bool {
	below := map[string]bool{}
	for i := range ix.Images {
		if r := &ix.Images[i]; len(r.Below) > 0 && (keep == nil || keep(r)) {
			for _, digest := range r.Below {
				below[digest] = true
			}
		}
	}
	ix.linked(below, keep)
	return below
}

// Beyond returns a function for the bytes that a record and what lies below it take beyond the records that keep accepts, what lies
// below these, and the records of earlier calls.
func (ix *Index) Beyond(keep func(*Record) bool) func(*Record) int64 {
	have, sizes := ix.Below(keep), ix.sizesOf()
	for i := range ix.Images {
		if r := &ix.Images[i]; keep(r) {
			have[r.Digest] = true
		}
	}
	return func(r *Record) (n int64) {
		for _, digest := range append([]string{r.Digest}, r.Below...) {
			if !have[digest] {
				have[digest], n = true, n+sizes[digest]
			}
		}
		return n
	}
}

// Over returns the record with the most root filesystems below it, among them one of a digest; nil for none.
func (ix *Index) Over(digest string) (over *Record) {
	for i := range ix.Images {
		if r := &ix.Images[i]; slices.Contains(r.Below, digest) && (over == nil || len(r.Below) > len(over.Below)) {
			over = r
		}
	}
	return over
}

// Foundation returns how many of the lowest root filesystems below a record are an image: no layers of snapshots, and no
// layers of a workspace that builds, "" for none. It is 1 if they are many: over the lowest alone the most layers may lie.
func (ix *Index) Foundation(r *Record, builder sandbox.WorkspaceID) (n int) {
	roots := ix.Roots(builder)
	isImage := func(digest string) bool {
		lower := roots.all[digest]
		return roots.own[digest] == nil && (lower == nil || !lower.Single())
	}
	for n < len(r.Below) && (n == 0 || isImage(r.Below[len(r.Below)-1-n])) {
		n++
	}
	if n > stack.Max/2 {
		return 1
	}
	return n
}

// Counted returns which root filesystems of a list, the upper first, count for a workspace because the layer of its
// snapshot lies over them: all but built-in images, and root filesystems that count because of its own images or
// dependencies in the list. A root filesystem that is another link to the file of a chain has the digest of the chain,
// so that the file counts once.
func (ix *Index) Counted(below []string, ws sandbox.WorkspaceID) (counted []sandbox.RootFS) {
	roots, with := ix.Roots(ws), map[string]bool{}
	for _, digest := range below {
		if own := roots.own[digest]; own != nil {
			_, others := roots.Below(own)
			for _, r := range others {
				with[r.Digest] = true
			}
		} else if r := roots.all[digest]; r != nil && !roots.builtin[digest] && !with[digest] {
			counted = append(counted, sandbox.RootFS{Digest: ix.chainOf(r), SizeBytes: r.SizeBytes})
		}
	}
	return counted
}

// Needed returns the digests of the root filesystems below the images with a name and the snapshots of a workspace, and below
// the records of the workspace over which nothing lies.
func (ix *Index) Needed(ws sandbox.WorkspaceID) map[string]bool {
	lower := ix.Below(nil)
	return ix.Below(func(r *Record) bool { return r.IsOf(ws) && (r.Current || r.Single() || !lower[r.Digest]) })
}

// Counts returns a function that reports whether a record counts for a workspace: [Record.CountsFor] does, unless the workspace has
// built the record and it stays without a name only because something of other workspaces lies over it.
func (ix *Index) Counts(ws sandbox.WorkspaceID) func(*Record) bool {
	lower, needed := ix.Below(nil), ix.Needed(ws)
	return func(r *Record) bool {
		return r.CountsFor(ws) && (r.Owner == "" || r.Current || !lower[r.Digest] || needed[r.Digest])
	}
}

// Cached returns the number of images in the build cache of a workspace.
func (ix *Index) Cached(ws sandbox.WorkspaceID) (n int) {
	counts := ix.Counts(ws)
	for i := range ix.Images {
		if r := &ix.Images[i]; counts(r) && !r.Current {
			n++
		}
	}
	return n
}

// Roots are the root filesystems of an index that may lie below images of a workspace.
type Roots struct {
	Counts  func(*Record) bool // see [Index.Counts]
	all     map[string]*Record // by digest
	own     map[string]*Record // by digest; each counts for the workspace
	builtin map[string]bool
}

// Roots returns the root filesystems for a workspace.
func (ix *Index) Roots(ws sandbox.WorkspaceID) Roots {
	roots := Roots{ix.Counts(ws), map[string]*Record{}, map[string]*Record{}, map[string]bool{}}
	for i := range ix.Images {
		r := &ix.Images[i]
		roots.all[r.Digest] = r
		if r.RecipeHash != "" {
			roots.builtin[r.Digest] = true
			for _, digest := range r.Below {
				roots.builtin[digest] = true
			}
		}
		if roots.Counts(r) {
			roots.own[r.Digest] = r
		}
	}
	return roots
}

// Below returns what lies below an image of the workspace, or below dependencies that count for it: root filesystems that count
// for the workspace also without the image, such as layers of its builds, and others that count for it only because of the
// image, such as snapshots, which may be deleted. Built-in images are in neither list.
func (roots Roots) Below(r *Record) (counted, others []*Record) {
	if r.Owner == "" && !roots.Counts(r) {
		return nil, nil
	}
	for _, digest := range r.Below {
		if own := roots.own[digest]; own != nil {
			counted = append(counted, own)
		} else if other := roots.all[digest]; other != nil && !roots.builtin[digest] {
			others = append(others, other)
		}
	}
	return counted, others
}

// Adds returns the bytes that a record, what counts below it, and a layer add to the images that count for
// its payer.
func (ix *Index) Adds(rec *Record, layerBytes int64) int64 {
	n, payer, counted := rec.SizeBytes, rec.Payer(), map[string]bool{}
	roots := ix.Roots(payer)
	for i := range ix.Images {
		if r := &ix.Images[i]; roots.Counts(r) {
			if r.Has(rec.Digest) {
				n = 0
			}
			_, others := roots.Below(r)
			for _, b := range others {
				counted[b.File()] = true
			}
			counted[r.File()] = true
		}
	}
	if counted[rec.File()] {
		n = 0
	}
	_, others := roots.Below(rec)
	for _, b := range others {
		if !counted[b.File()] {
			n += b.SizeBytes
			counted[b.File()] = true
		}
	}
	return n + layerBytes
}

// Image returns the catalogue entry of a record's image.
func (ix *Index) Image(r *Record) spec.Image {
	img := r.Image()
	if len(r.Below) == 0 {
		return img
	}
	read := ix.sizes
	if read == nil {
		read = ix.sizesOf
	}
	sizes := read()
	for _, digest := range r.Below {
		img.SizeBytes += sizes[digest]
	}
	return img
}

// sizesOf returns the size of each root filesystem, without what lies below it.
func (ix *Index) sizesOf() map[string]int64 {
	sizes := make(map[string]int64, len(ix.Images))
	for i := range ix.Images {
		sizes[ix.Images[i].Digest] = ix.Images[i].SizeBytes
	}
	return sizes
}
