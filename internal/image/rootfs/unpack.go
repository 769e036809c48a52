package rootfs

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/sandbox"
)

// Unpacker makes a root filesystem of the layers of an image of other tools. Only one goroutine at
// a time may use it.
type Unpacker struct {
	dir    string
	layers layerReader
}

// NewUnpacker returns an unpacker that works in a directory. Its memory counts for a workspace; the
// limits are for all layers together.
func NewUnpacker(ctx context.Context, s *Scratch, owner sandbox.WorkspaceID, dir string, limits Limits) (*Unpacker, error) {
	sp, err := newSpool(filepath.Join(dir, "files"))
	if err != nil {
		return nil, err
	}
	t := s.Tree(ctx, owner)
	t.lenient = true
	return &Unpacker{dir: dir, layers: layerReader{tree: t, spool: sp, limits: limits}}, nil
}

// Close frees memory and temporary files.
func (u *Unpacker) Close() {
	u.layers.tree.Close()
	u.layers.spool.file.Close()
}

// Layer applies the layer in a file, which may be compressed, over the layers before it. Errors:
// Invalid, also for a layer with another diff id; TooLarge; Unavailable when other trees use the
// memory.
func (u *Unpacker) Layer(ctx context.Context, file string, diffID v1.Hash) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := Decompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	if err := u.layers.read(ctx, io.TeeReader(plain, sum)); err != nil {
		return err
	}
	if got := SHA256(sum); got != diffID {
		return sandbox.Errorf(sandbox.Invalid, "the layer holds %s, and the image's configuration promises %s", got, diffID)
	}
	return nil
}

// Finish writes the root filesystem as an EROFS.
func (u *Unpacker) Finish(ctx context.Context) (root Result, err error) {
	if err := u.layers.spool.finish(); err != nil {
		return Result{}, err
	}
	root.EROFS = filepath.Join(u.dir, "root.erofs")
	root.Files, err = writeEROFS(ctx, root.EROFS, u.layers.tree, time.Unix(0, 0))
	return root, err
}
