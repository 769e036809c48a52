package archive

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sync"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// containerdName is the annotation in which the tools of containerd put the whole name of an image.
const containerdName = "io.containerd.image.name"

// Image is an image in a file.
type Image struct {
	Name string // as the file says; "" for none
	img  v1.Image
	// plain images come from docker save: their layers are not compressed, and they have no manifest.
	plain bool
}

// Plain reports whether the image comes from an archive of docker save.
func (i *Image) Plain() bool { return i.plain }

// Read returns the images in a file: an OCI image layout, as a directory or a tar, or an archive
// of docker save. Of an index it takes the image for this host's platform. It unpacks a tar into
// dir, which must stay until the images have been read.
//
// Errors: Invalid for another kind of file, and for an index without this host's platform; TooLarge;
// errors of the file system.
func Read(ctx context.Context, file, dir string) ([]*Image, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return layoutImages(file)
	}
	isDocker, err := unpackLayout(ctx, file, filepath.Join(dir, "layout"))
	if err != nil {
		return nil, err
	}
	if isDocker {
		return dockerImages(file)
	}
	return layoutImages(filepath.Join(dir, "layout"))
}

// layoutImages returns the images of an OCI image layout.
func layoutImages(dir string) ([]*Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "it is neither an OCI image layout nor an archive of docker save")
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its index cannot be read")
	}
	var found []*Image
	for _, d := range manifest.Manifests {
		f := &Image{Name: cmp.Or(d.Annotations[containerdName], d.Annotations[specs.AnnotationRefName])}
		switch {
		case d.MediaType.IsIndex():
			f.img, err = platformImage(index, d.Digest)
		case d.MediaType.IsImage():
			f.img, err = index.Image(d.Digest)
		default:
			continue
		}
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "its image %s cannot be read", d.Digest)
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no image in it")
	}
	return found, nil
}

// platformImage returns the image of an index for this host.
func platformImage(parent v1.ImageIndex, digest v1.Hash) (v1.Image, error) {
	index, err := parent.ImageIndex(digest)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	want := oci.Platform()
	for _, d := range manifest.Manifests {
		if d.MediaType.IsImage() && (d.Platform == nil || d.Platform.Satisfies(want)) {
			return index.Image(d.Digest)
		}
	}
	return nil, sandbox.Errorf(sandbox.Unsupported, "it has no image for linux/%s; it has %s", want.Architecture, oci.Platforms(manifest))
}

// dockerImages returns the images of an archive of docker save.
func dockerImages(file string) ([]*Image, error) {
	open := func() (io.ReadCloser, error) { return os.Open(file) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its manifest.json cannot be read")
	}
	var found []*Image
	for _, d := range manifest {
		if len(d.RepoTags) == 0 && len(manifest) > 1 {
			continue // the library finds images by their tags only
		}
		var tag *ociname.Tag
		f := &Image{plain: true}
		if len(d.RepoTags) > 0 {
			f.Name = d.RepoTags[0]
			parsed, err := ociname.NewTag(f.Name)
			if err != nil {
				return nil, sandbox.InvalidField("name", "%.100q is not an image name", f.Name)
			}
			tag = &parsed
		}
		if f.img, err = tarball.Image(open, tag); err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "its image %.100s cannot be read", f.Name)
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no image with a name in it")
	}
	return found, nil
}

// layoutFile matches the names of files in an OCI image layout.
var layoutFile = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)
})

// unpackLayout unpacks an OCI image layout from a tar into a new directory, and writes no other
// file that the tar contains. It reports whether the tar is an archive of docker save and no
// layout.
func unpackLayout(ctx context.Context, file, dir string) (isDocker bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return false, err
	}
	m := &rootfs.Meter{Limits: rootfs.Limits{Bytes: oci.MaxBytes, Entries: 10_000}}
	isLayout := false
	for tr := tar.NewReader(m.Reader(f)); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, sandbox.Wrap(sandbox.Invalid, err, "it is not a tar archive; unpack it when it is compressed")
		}
		if err := errors.Join(m.Entry(hdr.Size), ctx.Err()); err != nil {
			return false, err
		}
		name := path.Clean(hdr.Name)
		isLayout = isLayout || name == specs.ImageIndexFile
		isDocker = isDocker || name == "manifest.json"
		if hdr.Typeflag != tar.TypeReg || !layoutFile().MatchString(name) {
			continue
		}
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(name)), tr); err != nil {
			return false, err
		}
	}
	return isDocker && !isLayout, nil
}

func writeFile(name string, content io.Reader) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}
