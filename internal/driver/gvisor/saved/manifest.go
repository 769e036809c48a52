package saved

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/sandbox"
)

// Names of a manifest, and its formats.
const (
	ManifestName = "manifest.json"
	// ManifestCopy has the same content as the manifest: damage to one of the two does no harm.
	ManifestCopy = "manifest.copy.json"

	// FormatPlatform is FormatHandover for a box that did not run on systrap. Earlier versions would restore it
	// on systrap.
	FormatPlatform = 5
	// FormatHandover is the format of a box whose agent takes connections on a socket. Earlier versions
	// would restore it without the socket.
	FormatHandover = 4
	// FormatFramed is the format of a box whose root the agent made of an image without layers below. Earlier
	// versions would restore it without its frame.
	FormatFramed = 3
	// Format is the format of all other checkpoints with digests.
	Format = 2
	// FormatPlain is the format without digests.
	FormatPlain = 1
	maxManifest = 8 << 20 // digests of 128 GiB take 3 MiB
)

// Manifest describes a checkpoint and what it needs.
type Manifest struct {
	Format int    `json:"format"`
	GVisor string `json:"gvisor"` // gVisor's version; another version may misread its state
	CPU    CPU    `json:"cpu"`
	Agent  string `json:"agent"` // name of the agent's image, which is a hash of its content
	// Frame is the name of the frame's image if the agent assembled the root, else "". It is also "" in checkpoints of
	// several layers that were made before frames had names.
	Frame string `json:"frame,omitempty"`
	// Platform runs the box; "" is systrap. A checkpoint is restored only on its own.
	Platform platform.Name `json:"platform,omitempty"`
	// Framed is, with FormatHandover and later, what FormatFramed is for earlier checkpoints.
	Framed bool      `json:"framed,omitempty"`
	RootFS ImageMark `json:"rootfs"`
	// State of the guest's kernel, which is restored unchanged.
	Layout       layer.Layout      `json:"layout"`
	Resources    sandbox.Resources `json:"resources"`
	MaxProcesses int64             `json:"max_processes"`
	// Files has the size of each file, by name; of a layer only when it has sums.
	Files map[string]int64 `json:"files"`
	// Sums has the digests of each file, by name. Checkpoints of format 1, and checkpoints that
	// this server made only for itself and restores immediately, have none.
	Sums map[string]chunksum.Sums `json:"sums,omitempty"`
	// FilesOnly: the checkpoint has a layer and none of gVisor's files, and what concerns these is empty.
	FilesOnly bool `json:"files_only,omitempty"`
}

// names are gVisor's files of the checkpoint.
func (m Manifest) names() []string {
	if m.FilesOnly {
		return nil
	}
	return names
}

// sealed is a manifest as it is written: with a digest of itself. To a program that knows only
// format 1 it has an unknown format.
type sealed struct {
	Format   int             `json:"format"`
	Digest   []byte          `json:"digest"`
	Manifest json.RawMessage `json:"manifest"`
}

// WriteManifest measures the files in dir and writes m there. It syncs nothing.
func WriteManifest(dir string, m Manifest) error {
	m.Files = map[string]int64{}
	for _, name := range m.names() {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		m.Files[name] = info.Size()
	}
	if s, ok := m.Sums[LayerName]; ok {
		m.Files[LayerName] = s.Size
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	digest := chunksum.Digest(body)
	data, err := json.Marshal(sealed{Format: m.Format, Digest: digest[:], Manifest: body})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, ManifestName), data, 0o600),
		os.WriteFile(filepath.Join(dir, ManifestCopy), data, 0o600))
}

// ReadManifest reads the manifest in dir, or its copy when that is damaged.
func ReadManifest(dir string) (Manifest, error) {
	m, err := readOneManifest(dir, ManifestName)
	if err == nil {
		return m, nil
	}
	m, cerr := readOneManifest(dir, ManifestCopy)
	if cerr != nil {
		return Manifest{}, errors.Join(err, cerr)
	}
	return m, nil
}

func readOneManifest(dir, name string) (m Manifest, err error) {
	f, err := openSaved(dir, name)
	if err != nil {
		return m, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return m, err
	}
	var outer sealed
	if err := json.Unmarshal(data, &outer); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if outer.Manifest == nil { // the format without digests
		if outer.Format >= Format { // every format but FormatPlain has digests
			return m, fmt.Errorf("%s of format %d is empty", name, outer.Format)
		}
		err := json.Unmarshal(data, &m)
		return m, err
	}
	if digest := chunksum.Digest(outer.Manifest); !bytes.Equal(digest[:], outer.Digest) {
		return m, fmt.Errorf("%s differs from its digest", name)
	}
	err = json.Unmarshal(outer.Manifest, &m)
	return m, err
}

// ImageMark distinguishes images without reading them whole: an image begins with a superblock that
// has its checksum and sizes, and the inodes of the root.
type ImageMark struct {
	Size int64  `json:"size"`
	Head string `json:"head"` // hash of its beginning
}

// MarkImage returns the mark of an image.
func MarkImage(path string) (ImageMark, error) {
	f, err := os.Open(path)
	if err != nil {
		return ImageMark{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ImageMark{}, err
	}
	const head = 64 << 10
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, head); err != nil && !errors.Is(err, io.EOF) {
		return ImageMark{}, err
	}
	return ImageMark{Size: info.Size(), Head: hex.EncodeToString(sum.Sum(nil))}, nil
}
