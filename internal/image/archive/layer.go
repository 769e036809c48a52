package archive

import (
	"cmp"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
)

// Layered describes an image made of another image and a layer.
type Layered struct {
	Layer     rootfs.Blob
	CreatedBy string // in the history; "" is a commit
	Config    spec.Config
	Labels    map[string]string // in addition to the labels of the other image
}

// AddLayer returns an image with a layer over the layers of base; nil is no layer.
func AddLayer(base v1.Image, l Layered) (v1.Image, error) {
	img, err := mutate.Append(plain(cmp.Or(base, empty.Image)), mutate.Addendum{
		Layer:   l.Layer.Layer(),
		History: v1.History{Created: v1.Time{Time: time.Unix(0, 0).UTC()}, CreatedBy: cmp.Or(l.CreatedBy, "modbox commit")},
	})
	if err != nil {
		return nil, err
	}
	config, err := configOf(img)
	if err != nil {
		return nil, err
	}
	of := &config.Config
	of.Entrypoint, of.Cmd, of.Env = l.Config.Entrypoint, l.Config.Cmd, l.Config.Env
	of.WorkingDir, of.User = l.Config.WorkingDir, l.Config.User
	for k, v := range l.Labels {
		if of.Labels == nil {
			of.Labels = map[string]string{}
		}
		of.Labels[k] = v
	}
	return mutate.ConfigFile(img, config)
}

// Configure returns an image with the layers of base and another configuration.
func Configure(base v1.Image, author string, c v1.Config) (v1.Image, error) {
	config, err := configOf(base)
	if err != nil {
		return nil, err
	}
	config.Created = v1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	config.Author, config.Config = author, c
	return mutate.ConfigFile(plain(base), config)
}

// plain returns an image with the media types of OCI.
func plain(img v1.Image) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// configOf returns a copy of the configuration of an image, for this platform.
func configOf(img v1.Image) (*v1.ConfigFile, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	return config, nil
}
