package image

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/sizes"
)

// fetch makes the path to another name of a blob, which it downloads unless the store has it. It
// reports each piece to progress.
func (p *puller) fetch(ctx context.Context, repo *remote.Repository, blob v1.Descriptor, to string, progress func(bytes int64)) error {
	if linked, err := p.linkFetched(repo, blob, to); linked || err != nil {
		progress(blob.Size)
		return err
	}
	d, err := p.downloads.Begin(ctx, repo, blob)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing is lost
	if linked, err := p.linkFetched(repo, blob, to); linked || err != nil {
		progress(blob.Size)
		return errors.Join(err, d.Discard()) // another pull has just completed it
	}
	return d.Complete(ctx, to, progress)
}

// linkFetched makes the path to another name of a blob that the store has and that the callers of
// the repository may have. The end of a pull moves its blobs from the downloads to the layout, so
// the layout comes second.
func (p *puller) linkFetched(repo *remote.Repository, blob v1.Descriptor, to string) (bool, error) {
	linked, err := p.downloads.Link(repo, blob, to)
	if linked || err != nil {
		return linked, err
	}
	if free, err := p.isFree(repo, blob.Digest.String()); err != nil || !free {
		return false, err
	}
	return remote.LinkBlob(p.layout.Blob(blob.Digest), to, blob.Size)
}

// isFree reports whether a layer belongs to an image that all workspaces may use, or to an image
// of the repository. For other layers a digest must not be enough, because anyone who may push to
// the repository can name it: not every registry checks that the client has the layer.
func (p *puller) isFree(repo *remote.Repository, digest string) (bool, error) {
	ix, err := p.index.Load()
	if err != nil {
		return false, err
	}
	for i := range ix.Images {
		r := &ix.Images[i]
		same := r.Pull != nil && isOf(r.Pull.Reference, repo.Name())
		if !same && (r.Name == "" || r.Readers() != nil) {
			continue
		}
		layers, err := p.sizes.BlobsOf(r)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(layers, func(b sizes.Blob) bool { return b.Digest == digest }) {
			return true, nil
		}
	}
	return false, nil
}

// isOf reports whether the reference of a pull names a repository.
func isOf(reference, repository string) bool {
	identifier, ok := strings.CutPrefix(reference, repository)
	return ok && (strings.HasPrefix(identifier, ":") || strings.HasPrefix(identifier, "@"))
}
