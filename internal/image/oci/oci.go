// Package oci checks OCI images that come from registries and archives, before any of their
// layers is read: the number and size of the layers, the kinds of the blobs, the platform, and
// the configuration. It reads and writes nothing.
package oci

import (
	"cmp"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// MaxBytes bounds the layers of an image together, compressed and uncompressed, and their files.
const MaxBytes = 128 << 30

const (
	layersMax = 256
	configMax = 1 << 20 // bytes of a configuration
)

// Image is the manifest of an image, and its configuration once that is read.
type Image struct {
	Raw      []byte // the manifest as it came
	Manifest *v1.Manifest
	Config   *v1.ConfigFile // nil until it is read
}

// LayerFile returns the path of the layer with an index in a working directory.
func LayerFile(dir string, i int) string { return filepath.Join(dir, "layer-"+strconv.Itoa(i)) }

// ConfigFile returns the path of the configuration in a working directory.
func ConfigFile(dir string) string { return filepath.Join(dir, "config") }

// Platform is the platform of the images that run on this host.
func Platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Platforms lists the platforms of an index, for messages. It names 20 at most.
func Platforms(index *v1.IndexManifest) string {
	var names []string
	for _, m := range index.Manifests {
		if m.Platform != nil && len(names) < 20 {
			names = append(names, m.Platform.String())
		}
	}
	return strings.Join(names, ", ")
}

// CheckManifest returns an error for a manifest whose layers cannot become a root filesystem, and
// calls the image name in it. Errors: TooLarge; Unsupported.
func CheckManifest(name string, m *v1.Manifest) error {
	var total int64
	for _, l := range m.Layers {
		if l.Size < 0 || l.Size > MaxBytes {
			return sandbox.Errorf(sandbox.TooLarge, "the image %s has a layer of %d bytes", name, l.Size)
		}
		total += l.Size
		if !l.MediaType.IsLayer() {
			return sandbox.Errorf(sandbox.Unsupported, "%s is not an image of files: it has a layer of the kind %.100q", name, l.MediaType)
		}
		if l.Digest.Algorithm != "sha256" {
			return sandbox.Errorf(sandbox.Unsupported, "the image %s has the digest %.100q, which is not a sha256", name, l.Digest)
		}
	}
	switch {
	case m.Config.MediaType != types.OCIConfigJSON && m.Config.MediaType != types.DockerConfigJSON:
		return sandbox.Errorf(sandbox.Unsupported, "%s is not an image of files: its configuration is %.100q", name, m.Config.MediaType)
	case len(m.Layers) > layersMax:
		return sandbox.Errorf(sandbox.TooLarge, "the image %s has %d layers, more than %d", name, len(m.Layers), layersMax)
	case total > MaxBytes || m.Config.Size > configMax || m.Config.Size < 0:
		return sandbox.Errorf(sandbox.TooLarge, "the image %s has %d bytes of layers and %d of configuration, more than are accepted", name, total, m.Config.Size)
	}
	return nil
}

// CheckLayers returns an error when the configuration does not describe as many layers as the
// manifest has. Errors: Invalid.
func (i Image) CheckLayers() error {
	if n := len(i.Config.RootFS.DiffIDs); n != len(i.Manifest.Layers) {
		return sandbox.Errorf(sandbox.Invalid, "the image has %d layers, and its configuration describes %d", len(i.Manifest.Layers), n)
	}
	return nil
}

// RunConfig returns the parts of a configuration that say how an image is run. It omits
// variables without a name and ports that are not TCP. Errors: Invalid for a value that cannot
// be an argument of a program.
func RunConfig(c *v1.Config) (spec.Config, error) {
	out := spec.Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, User: c.User}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && !strings.ContainsRune(e, 0) {
			out.Env = append(out.Env, e)
		}
	}
	if c.WorkingDir != "" {
		out.WorkingDir = path.Join("/", c.WorkingDir)
	}
	for _, s := range append(append([]string{c.User, c.WorkingDir}, c.Entrypoint...), c.Cmd...) {
		if strings.ContainsRune(s, 0) || len(s) > 128<<10 {
			return out, sandbox.Errorf(sandbox.Invalid, "the image's configuration has a value that no program can be given: %.100q", s)
		}
	}
	for port := range c.ExposedPorts {
		number, protocol, _ := strings.Cut(port, "/")
		if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 && cmp.Or(protocol, "tcp") == "tcp" {
			out.ExposedPorts = append(out.ExposedPorts, uint16(n))
		}
	}
	slices.Sort(out.ExposedPorts)
	return out, nil
}
