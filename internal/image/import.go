package image

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// ImportOptions says how to import.
type ImportOptions struct {
	// Name is what a single image is called, as NAME:TAG; "" is as its file says.
	Name string
	// Progress is told what happens; may be nil.
	Progress func(phase.Event)
}

// containerdName is where containerd's tools put an image's whole name.
const containerdName = "io.containerd.image.name"

// Import makes the images in a file part of the store: an OCI image layout, as a
// directory or a tar, or an archive of docker save. Of an index the image of this
// host's platform is taken. Layers are checked as by [Store.Pull].
//
// An image that was exported as a built-in one becomes the built-in one here, when
// this server has the same recipe.
//
// Errors: Invalid for what is none of these, for images without a name, for other
// images with the name of a built-in one, and for what Pull calls so; Unsupported and
// TooLarge as by Pull.
// Images that come before the one that fails stay.
func (s *Store) Import(ctx context.Context, file string, opts ImportOptions) ([]sandbox.Image, error) {
	if opts.Progress == nil {
		opts.Progress = func(phase.Event) {}
	}
	work, err := s.workDir(ctx)
	if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // what stays, the next Open removes
	defer undo.Clean()
	found, err := readImages(ctx, file, work.Name())
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", file, err)
	}
	if opts.Name != "" && len(found) != 1 {
		return nil, sandbox.InvalidField("name", "%s has %d images, a name is for one", file, len(found))
	}
	var images []sandbox.Image
	for i, f := range found {
		f.name = cmp.Or(opts.Name, f.name)
		opts.Progress(phase.Event{Phase: phase.Writing, Done: int64(i), Total: int64(len(found)), Message: f.name})
		dir := filepath.Join(work.Name(), fmt.Sprintf("image-%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return images, err
		}
		rec, err := s.importImage(ctx, f, dir, opts.Progress)
		if err != nil {
			return images, fmt.Errorf("import %s from %s: %w", cmp.Or(f.name, "an image"), file, err)
		}
		images = append(images, s.imageOf(rec))
	}
	opts.Progress(phase.Event{Phase: phase.Done})
	return images, nil
}

// foundImage is an image in a file.
type foundImage struct {
	name string
	img  v1.Image
	// plain: its layers are not compressed, and its manifest is made up.
	plain bool
}

// readImages returns the images in a file. dir is for what has to be unpacked.
func readImages(ctx context.Context, file, dir string) ([]foundImage, error) {
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
func layoutImages(dir string) ([]foundImage, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "it is neither an OCI image layout nor an archive of docker save")
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its index cannot be read")
	}
	var found []foundImage
	for _, d := range manifest.Manifests {
		f := foundImage{name: cmp.Or(d.Annotations[containerdName], d.Annotations[specs.AnnotationRefName])}
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
	want := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsImage() && (d.Platform == nil || d.Platform.Satisfies(want)) {
			return index.Image(d.Digest)
		}
	}
	return nil, sandbox.Errorf(sandbox.Unsupported, "it has no image for linux/%s; it has %s", runtime.GOARCH, platformsOf(manifest))
}

// dockerImages returns the images of an archive of docker save.
func dockerImages(file string) ([]foundImage, error) {
	open := func() (io.ReadCloser, error) { return os.Open(file) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its manifest.json cannot be read")
	}
	var found []foundImage
	for _, d := range manifest {
		if len(d.RepoTags) == 0 && len(manifest) > 1 {
			continue // cannot be told from the others
		}
		var tag *ociname.Tag
		f := foundImage{plain: true}
		if len(d.RepoTags) > 0 {
			f.name = d.RepoTags[0]
			parsed, err := ociname.NewTag(f.name)
			if err != nil {
				return nil, sandbox.InvalidField("name", "%.100q is not an image name", f.name)
			}
			tag = &parsed
		}
		if f.img, err = tarball.Image(open, tag); err != nil {
			return nil, sandbox.Wrap(sandbox.Invalid, err, "its image %.100s cannot be read", f.name)
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no image with a name in it")
	}
	return found, nil
}

// layoutFile are the names of what belongs to an OCI image layout.
var layoutFile = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

// unpackLayout unpacks an OCI image layout from a tar into a new directory, or
// reports that the tar is an archive of docker save and no layout. Nothing but the
// files of a layout is written, whatever the tar has.
func unpackLayout(ctx context.Context, file, dir string) (isDocker bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return false, err
	}
	m := &rootfs.Meter{Limits: rootfs.Limits{Bytes: pullMaxBytes, Entries: 10_000}}
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
		if hdr.Typeflag != tar.TypeReg || !layoutFile.MatchString(name) {
			continue
		}
		if err := unpackFile(filepath.Join(dir, filepath.FromSlash(name)), tr); err != nil {
			return false, err
		}
	}
	return isDocker && !isLayout, nil
}

func unpackFile(name string, content io.Reader) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// importImage makes one image part of the store.
func (s *Store) importImage(ctx context.Context, f foundImage, dir string, progress func(phase.Event)) (*record, error) {
	if r := s.builtInCalled(f.name); r != nil {
		return s.importBuiltIn(ctx, f, r, dir, progress)
	}
	name, tag, err := s.importName(f.name)
	if err != nil {
		return nil, err
	}
	p := pulledImage{}
	if p.config, err = f.img.ConfigFile(); err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its configuration cannot be read")
	}
	if f.plain {
		if f.img, err = compressLayers(ctx, f.img, p.config, dir); err != nil {
			return nil, err
		}
	}
	if p.raw, err = f.img.RawManifest(); err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its manifest cannot be read")
	}
	if p.manifest, err = f.img.Manifest(); err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its manifest cannot be read")
	}
	if err := checkManifest(cmp.Or(f.name, "image"), p.manifest); err != nil {
		return nil, err
	}
	if n := len(p.config.RootFS.DiffIDs); n != len(p.manifest.Layers) {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers, and its configuration speaks of %d", len(p.manifest.Layers), n)
	}
	if err := importBlobs(ctx, f, p, dir); err != nil {
		return nil, err
	}
	config, err := runConfig(&p.config.Config)
	if err != nil {
		return nil, err
	}
	ready := make([]chan struct{}, len(p.manifest.Layers))
	for i := range ready {
		ready[i] = make(chan struct{})
		close(ready[i])
	}
	root, err := s.unpack(ctx, p, "", pullMaxBytes, dir, ready, progress)
	if err != nil {
		return nil, err
	}
	rec := record{Name: name, Tag: tag, Current: true, Config: config, UpdatedAt: time.Now().UTC()}
	return &rec, s.keepPulled(ctx, root, &rec, p)
}

// importName returns the name and tag of an image that is imported.
func (s *Store) importName(ref string) (name, tag string, err error) {
	parsed, err := ociname.NewTag(ref, ociname.WithDefaultRegistry(reference.Local))
	if err != nil {
		return "", "", sandbox.InvalidField("name", "%.100q is not an image's name; give one like team/app:v1", ref)
	}
	name, tag = parsed.RepositoryStr(), parsed.TagStr()
	if parsed.RegistryStr() != reference.Local {
		return reference.RepositoryName(parsed), tag, nil
	}
	if _, err := s.Recipe(ref); err == nil || strings.HasPrefix(name, reference.BuiltinPrefix) {
		return "", "", sandbox.InvalidField("name", "%.100q is the name of a built-in image; give another", ref)
	}
	return name, tag, nil
}

// compressLayers compresses the layers of an image that has plain ones, and
// returns the image with those.
func compressLayers(ctx context.Context, img v1.Image, config *v1.ConfigFile, dir string) (v1.Image, error) {
	layers, err := img.Layers()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its layers cannot be read")
	}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i, l := range layers {
		b, err := compressLayer(ctx, l, layerFile(dir, i))
		if err != nil {
			return nil, err
		}
		if out, err = mutate.Append(out, mutate.Addendum{Layer: b.Layer()}); err != nil {
			return nil, err
		}
	}
	made, err := out.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.RootFS = made.RootFS // as we have just seen them, whatever it claims
	config.History = nil
	return mutate.ConfigFile(out, config)
}

func compressLayer(ctx context.Context, l v1.Layer, to string) (rootfs.Blob, error) {
	r, err := l.Uncompressed()
	if err != nil {
		return rootfs.Blob{}, sandbox.Wrap(sandbox.Invalid, err, "a layer cannot be read")
	}
	defer r.Close()
	return rootfs.Compress(ctx, r, to, pullMaxBytes)
}

// importBlobs copies an image's configuration and layers into dir and checks them.
func importBlobs(ctx context.Context, f foundImage, p pulledImage, dir string) error {
	config, err := f.img.RawConfigFile()
	if err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "its configuration cannot be read")
	}
	if err := importBlob(ctx, p.manifest.Config, filepath.Join(dir, "config"), func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(config))), nil
	}); err != nil || f.plain {
		return err // compressLayers made the layers
	}
	for i, d := range p.manifest.Layers {
		layer, err := f.img.LayerByDigest(d.Digest)
		if err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "its layer %s cannot be read", d.Digest)
		}
		if err := importBlob(ctx, d, layerFile(dir, i), layer.Compressed); err != nil {
			return err
		}
	}
	return nil
}

func importBlob(ctx context.Context, d v1.Descriptor, to string, open func() (io.ReadCloser, error)) error {
	r, err := open()
	if err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "its blob %s cannot be read", d.Digest)
	}
	defer r.Close()
	sum := sha256.New()
	if err := unpackFile(to, io.TeeReader(io.LimitReader(rootfs.UntilDone(ctx, r), d.Size+1), sum)); err != nil {
		return err
	}
	if got := rootfs.SHA256(sum); got != d.Digest {
		return sandbox.Errorf(sandbox.Invalid, "its blob %s is damaged: it has the digest %s", d.Digest, got)
	}
	return syncPath(to)
}
