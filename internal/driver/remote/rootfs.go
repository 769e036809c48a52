package remote

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// rootFile is the name of the file of a root filesystem, see package stack.
var rootFile = regexp.MustCompile(`^[0-9a-f]{64}\.erofs$`)

// digestOf returns the digest of a root filesystem, which is in the name of its file; "" for "". Errors: Invalid.
func digestOf(rootfs string) (string, error) {
	if rootfs == "" {
		return "", nil
	}
	name := filepath.Base(rootfs)
	if !filepath.IsAbs(rootfs) || !rootFile.MatchString(name) {
		return "", sandbox.InvalidField("rootfs", "the path %q does not name a root filesystem by its digest", rootfs)
	}
	return "sha256:" + name[:64], nil
}

// image is a file of a root filesystem on the control plane.
type image struct {
	digest string
	path   string
	size   int64
}

// SizeOf returns the size of the files of a root filesystem. Errors: Invalid.
func SizeOf(rootfs string) (n int64, err error) {
	images, err := imagesOf(rootfs)
	for _, i := range images {
		n += i.size
	}
	return n, err
}

// imagesOf returns the files of a root filesystem; none for "". Errors: Invalid.
func imagesOf(rootfs string) ([]image, error) {
	digest, err := digestOf(rootfs)
	if err != nil || digest == "" {
		return nil, err
	}
	below, err := stack.ReadFile(rootfs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.InvalidField("rootfs", "there is no root filesystem %s", digest)
	}
	if err != nil {
		return nil, err
	}
	var images []image
	for _, d := range append([]string{digest}, below...) {
		path := filepath.Join(filepath.Dir(rootfs), stack.FileName(d))
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		images = append(images, image{d, path, info.Size()})
	}
	return images, nil
}
