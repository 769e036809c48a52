package imagearchive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
)

// image is an image that is to be stored.
type image struct {
	*index.Record
	key string
	// workspace is the workspace whose image it is, or whose image lies over it.
	workspace sandbox.WorkspaceID
}

// isMade reports whether an image cannot be pulled or built again from its recipe, and is in no cache.
func isMade(r *index.Record) bool { return r.Pull == nil && r.RecipeHash == "" && r.CacheKey == "" }

// wanted returns the images that are to be stored, each after what lies below it.
func wanted(ix *index.Index, needed []string) []image {
	also := map[string]bool{}
	for _, digest := range needed {
		also[digest] = true
	}
	byDigest := map[string][]*index.Record{}
	for i := range ix.Images {
		r := &ix.Images[i]
		byDigest[r.Digest] = append(byDigest[r.Digest], r)
	}
	var list []image
	have := map[*index.Record]bool{}
	add := func(digest string, ws sandbox.WorkspaceID) {
		for _, r := range byDigest[digest] {
			if !have[r] {
				have[r] = true
				list = append(list, image{r, r.Key(), ws})
			}
		}
	}
	for i := range ix.Images {
		r := &ix.Images[i]
		if !isMade(r) && !also[r.Digest] {
			continue
		}
		for _, digest := range slices.Backward(r.Below) { // the lowest first
			add(digest, workspaceOf(r))
		}
		add(r.Digest, workspaceOf(r))
	}
	return list
}

// origin says from where a file of an image is sent.
type origin int

const (
	// none is the origin of a file that is stored, and of a file whose only copy is damaged.
	none origin = iota
	// disk is the origin of a file that is not stored, or whose copy is damaged or another installation's, which may remove it.
	disk
	// bucket is the origin of a file that another installation has stored, and that is not on the disk.
	bucket
)

// originOf returns the origin of the file with a digest and a path, and its record, if it has one.
func (s *Service) originOf(digest, name string) (origin, index.StoredFile) {
	f, has := s.find(digest)
	if !has {
		return disk, f
	}
	isOwn := f.Content == "" || f.By == s.cfg.Installation
	if isOwn && f.DamagedAt.IsZero() {
		return none, f
	}
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return disk, f
	case errors.Is(err, fs.ErrNotExist) && !isOwn && f.DamagedAt.IsZero():
		return bucket, f
	}
	return none, f
}

// isStored reports whether no file of an image is to be sent.
func (s *Service) isStored(img image, m *manifests) bool {
	if from, _ := s.originOf(img.Digest, m.files.Path(img.Digest)); from != none {
		return false
	}
	digests, err := m.digests(img.Record)
	return err == nil && !slices.ContainsFunc(digests, func(d string) bool {
		from, _ := s.originOf(d, m.files.Layout.Blob(v1.Hash{Algorithm: "sha256", Hex: hexOf(d)}))
		return from != none
	})
}

// manifests remembers the blobs of images.
type manifests struct {
	files verify.Files
	known map[v1.Hash][]string // digests of the blobs, by manifest
}

// keep forgets the blobs of all other images.
func (m *manifests) keep(list []image) {
	known := map[v1.Hash][]string{}
	for _, img := range list {
		if digests, ok := m.known[img.Manifest.Digest]; ok {
			known[img.Manifest.Digest] = digests
		}
	}
	m.known = known
}

// digests returns the digests of the blobs of an image.
func (m *manifests) digests(r *index.Record) (digests []string, err error) {
	if digests, ok := m.known[r.Manifest.Digest]; ok {
		return digests, nil
	}
	list, err := blobs(m.files, r)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", r.Title(), err)
	}
	for _, b := range list {
		digests = append(digests, b.Digest.String())
	}
	m.known[r.Manifest.Digest] = digests
	return digests, nil
}

// blobs returns the blobs of an image: the layers, the configuration, and the manifest.
func blobs(files verify.Files, r *index.Record) ([]v1.Descriptor, error) {
	m, err := files.Layout.Manifest(r.Manifest.Digest)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(m.Layers), m.Config, v1.Descriptor{Digest: r.Manifest.Digest, Size: r.Manifest.Size}), nil
}

// reach returns the digests of all files of images.
func reach(list []image, m *manifests) (map[string]bool, error) {
	reached := map[string]bool{}
	for _, img := range list {
		digests, err := m.digests(img.Record)
		if err != nil {
			return nil, err
		}
		reached[img.Digest] = true
		for _, d := range digests {
			reached[d] = true
		}
	}
	return reached, nil
}

// released returns the released files.
func (s *Service) released() (list []index.StoredFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.stored {
		if !f.ReleasedAt.IsZero() {
			list = append(list, f)
		}
	}
	return list
}

// full reports whether the released files of a workspace wait for their removal, so that nothing of it is to be stored.
func (s *Service) full() func(sandbox.WorkspaceID) bool {
	sums := map[sandbox.WorkspaceID]int64{}
	for _, f := range s.released() {
		sums[f.Workspace] += f.SizeBytes
	}
	return func(ws sandbox.WorkspaceID) bool { return sums[ws] > 2*releasedMost }
}

// due returns the files that are to be removed: released before a time, or so early that the later files of the workspace have more than releasedMost.
func (s *Service) due(before time.Time) (due []index.StoredFile) {
	list, sums := s.released(), map[sandbox.WorkspaceID]int64{}
	slices.SortFunc(list, func(a, b index.StoredFile) int { return b.ReleasedAt.Compare(a.ReleasedAt) })
	for _, f := range list { // the last first
		sums[f.Workspace] += f.SizeBytes
		if f.ReleasedAt.Before(before) || sums[f.Workspace] > releasedMost {
			due = append(due, f)
		}
	}
	slices.Reverse(due)
	return due
}
