package rootfs

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/compressed"
	"github.com/modbox/modbox/internal/sandbox"
)

// Unpacker makes root filesystems of the layers of an image of other tools. Only one goroutine at
// a time may use it.
type Unpacker struct {
	scratch *Scratch
	owner   sandbox.WorkspaceID
	dir     string
	layers  layerReader
	written int // the first layer that no file has
}

// NewUnpacker returns an unpacker that works in a directory. Its memory counts for a workspace; the
// limits are for all layers together.
func NewUnpacker(ctx context.Context, s *Scratch, owner sandbox.WorkspaceID, dir string, limits Limits) (*Unpacker, error) {
	sp, err := newSpool(filepath.Join(dir, "files"))
	if err != nil {
		return nil, err
	}
	u := &Unpacker{scratch: s, owner: owner, dir: dir, layers: layerReader{tree: s.Tree(ctx, owner), spool: sp, limits: limits, used: &Meter{Limits: limits}}}
	u.layers.tree.lenient = true
	return u, nil
}

// Close frees memory and temporary files.
func (u *Unpacker) Close() {
	u.layers.tree.Close()
	u.layers.spool.file.Close()
}

// Over makes the next layers lie over a root filesystem instead of the layers before. It must stay open for as
// long as the unpacker is used. Errors: as of [Scratch.Files].
func (u *Unpacker) Over(ctx context.Context, base *Stack) error {
	u.layers.tree.Close()
	u.layers.tree = u.scratch.Tree(ctx, u.owner)
	u.layers.tree.lenient = true
	err := u.layers.tree.Read(base)
	u.written = u.layers.tree.layer
	return err
}

// Layer applies the layer in a file, which may be compressed, over the layers before it. Errors:
// Invalid, also for a layer with another diff id; TooLarge; Unavailable when other trees use the
// memory.
func (u *Unpacker) Layer(ctx context.Context, file string, diffID v1.Hash) error {
	return u.open(file, diffID, func(plain io.Reader) error { return u.layers.read(ctx, plain) })
}

// Check reads a layer for its diff id alone. Its bytes count for the limits. Errors: as of [Unpacker.Layer].
func (u *Unpacker) Check(ctx context.Context, file string, diffID v1.Hash) error {
	return u.open(file, diffID, func(plain io.Reader) error {
		_, err := io.Copy(io.Discard, UntilDone(ctx, u.layers.used.Reader(plain)))
		return err
	})
}

// open calls read with the tar in a file, and compares its diff id.
func (u *Unpacker) open(file string, diffID v1.Hash, read func(plain io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := compressed.Open(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	if err := read(io.TeeReader(plain, sum)); err != nil {
		return err
	}
	if got := SHA256(sum); got != diffID {
		return sandbox.Errorf(sandbox.Invalid, "the layer holds %s, and the image's configuration promises %s", got, diffID)
	}
	return nil
}

// Write writes the layers as an EROFS with a name. Over a base, which has the tree of the layers written
// before, the file has only the differences. Further layers may follow.
func (u *Unpacker) Write(ctx context.Context, name string, base *Base) (root Result, err error) {
	if err := u.layers.spool.finish(); err != nil {
		return Result{}, err
	}
	t := u.layers.tree
	root.EROFS = filepath.Join(u.dir, name)
	if base == nil {
		root.Files, err = writeEROFS(ctx, root.EROFS, t, time.Unix(0, 0))
		t.root.unlink()
	} else {
		root.Files = t.root.size()
		err = u.writeOver(ctx, root.EROFS, *base)
	}
	u.written = t.layer
	return root, err
}

// writeOver writes the differences to a base.
func (u *Unpacker) writeOver(ctx context.Context, erofs string, base Base) error {
	out := u.scratch.Tree(ctx, u.owner)
	defer out.Close()
	d := difference{ctx: ctx, from: u.written, base: base.Stack, out: out, again: map[*node]bool{}}
	if err := d.make(u.layers.tree); err != nil {
		return err
	}
	_, err := writeEROFS(ctx, erofs, out, time.Unix(0, 0))
	out.root.unlink()
	if err != nil {
		return err
	}
	return base.list(erofs)
}

// unlink forgets the numbers of names, which the next file counts again.
func (n *node) unlink() {
	for _, child := range n.names {
		child.links = 0
		child.unlink()
	}
}

// size returns the number of names below a directory.
func (n *node) size() (names int64) {
	for _, child := range n.names {
		names += 1 + child.size()
	}
	return names
}
