package sizes

import (
	"slices"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// ImagesWith returns the bytes of the images with a name of the owner of a record, with all below them that counts, once
// the record is added. It need not be in the index; its OCI image may be any with the same layers.
func (z *Meter) ImagesWith(ix *index.Index, rec index.Record) (int64, error) {
	with := &index.Index{Images: slices.Clone(ix.Images)}
	with.Add(rec)
	have, err := z.In(with, rec.Owner)
	return have.Images, err
}

// ImagesWithout returns the bytes of the images of a workspace with names other than the given one, with all below them
// that counts.
func (z *Meter) ImagesWithout(owner sandbox.WorkspaceID, name, tag string) (int64, error) {
	ix, err := z.index.Load()
	if err != nil {
		return 0, err
	}
	without := &index.Index{Images: slices.Clone(ix.Images)}
	for i := range without.Images {
		if r := &without.Images[i]; r.Owner == owner && r.Name == name && r.Tag == tag {
			r.Current = false
		}
	}
	have, err := z.In(without, owner)
	return have.Images, err
}
