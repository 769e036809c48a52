package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config returns the configuration of the image. Errors: Invalid.
func (i *Image) Config() (*v1.ConfigFile, error) {
	config, err := i.img.ConfigFile()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its configuration cannot be read")
	}
	return config, nil
}

// Manifest returns the manifest of the image. Errors: Invalid.
func (i *Image) Manifest() (*v1.Manifest, error) {
	manifest, err := i.img.Manifest()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its manifest cannot be read")
	}
	return manifest, nil
}

// Unpack checks the image, and writes its configuration and compressed layers as files to dir, see
// [oci.LayerFile]. An image of docker save gets compressed layers and a manifest.
//
// Errors: Invalid; Unsupported and TooLarge for an image that cannot become a root filesystem;
// errors of the file system.
func (i *Image) Unpack(ctx context.Context, dir string) (oci.Image, error) {
	var out oci.Image
	var err error
	if out.Config, err = i.Config(); err != nil {
		return out, err
	}
	if i.plain {
		if i.img, err = compressLayers(ctx, i.img, out.Config, dir); err != nil {
			return out, err
		}
	}
	if out.Raw, err = i.img.RawManifest(); err != nil {
		return out, sandbox.Wrap(sandbox.Invalid, err, "its manifest cannot be read")
	}
	if out.Manifest, err = i.Manifest(); err != nil {
		return out, err
	}
	if err := oci.CheckManifest(cmp.Or(i.Name, "image"), out.Manifest); err != nil {
		return out, err
	}
	if err := out.CheckLayers(); err != nil {
		return out, err
	}
	return out, i.WriteBlobs(ctx, out.Manifest, dir)
}

// compressLayers compresses the layers of an image of docker save, and returns the image with them.
func compressLayers(ctx context.Context, img v1.Image, config *v1.ConfigFile, dir string) (v1.Image, error) {
	layers, err := img.Layers()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "its layers cannot be read")
	}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i, l := range layers {
		b, err := compressLayer(ctx, l, oci.LayerFile(dir, i))
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
	config.RootFS = made.RootFS // of the layers as they are, not as the file claims
	config.History = nil
	return mutate.ConfigFile(out, config)
}

func compressLayer(ctx context.Context, l v1.Layer, to string) (rootfs.Blob, error) {
	r, err := l.Uncompressed()
	if err != nil {
		return rootfs.Blob{}, sandbox.Wrap(sandbox.Invalid, err, "a layer cannot be read")
	}
	defer r.Close()
	return rootfs.Compress(ctx, r, to, oci.MaxBytes)
}

// WriteBlobs writes the configuration and the layers of a manifest as files to dir, checked against
// their digests and on the disk. Errors: Invalid for a missing or damaged blob; errors of the file
// system.
func (i *Image) WriteBlobs(ctx context.Context, manifest *v1.Manifest, dir string) error {
	config, err := i.img.RawConfigFile()
	if err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "its configuration cannot be read")
	}
	if err := writeBlob(ctx, manifest.Config, oci.ConfigFile(dir), func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(config))), nil
	}); err != nil || i.plain {
		return err // compressLayers wrote the layers
	}
	for n, d := range manifest.Layers {
		layer, err := i.img.LayerByDigest(d.Digest)
		if err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "its layer %s cannot be read", d.Digest)
		}
		if err := writeBlob(ctx, d, oci.LayerFile(dir, n), layer.Compressed); err != nil {
			return err
		}
	}
	return nil
}

func writeBlob(ctx context.Context, d v1.Descriptor, to string, open func() (io.ReadCloser, error)) error {
	r, err := open()
	if err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "its blob %s cannot be read", d.Digest)
	}
	defer r.Close()
	sum := sha256.New()
	if err := writeFile(to, io.TeeReader(io.LimitReader(rootfs.UntilDone(ctx, r), d.Size+1), sum)); err != nil {
		return err
	}
	if got := rootfs.SHA256(sum); got != d.Digest {
		return sandbox.Errorf(sandbox.Invalid, "its blob %s is damaged: it has the digest %s", d.Digest, got)
	}
	return durable.Sync(to)
}
