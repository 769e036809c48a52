package rootfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"github.com/modbox/modbox/internal/sparse"
	"io"
	"math"
	"os"
)

// MarkLength is the number of bytes of a mark: the UUID of an EROFS, by which images with
// the same files have different digests.
const MarkLength = superUUIDLength

// Mark writes a mark into an EROFS.
func Mark(file string, mark []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(mark[:MarkLength], superblock+superUUID); err != nil {
		return err
	}
	return f.Close()
}

// OpenMarked opens an EROFS to read it from its beginning, with the mark as its UUID unless mark is empty.
func OpenMarked(name string, mark []byte) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil || len(mark) == 0 {
		return f, err
	}
	const before, after = superblock + superUUID, superblock + superUUID + MarkLength
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.NewSectionReader(f, 0, before), bytes.NewReader(mark), io.NewSectionReader(f, after, math.MaxInt64-after)), f}, nil
}

// Digest returns the sha256 of an EROFS as "sha256:HEX", and its size; with a mark, the sha256
// of the same EROFS with the mark as its UUID.
func Digest(ctx context.Context, name string, mark []byte) (string, int64, error) {
	content, err := OpenMarked(name, mark)
	if err != nil {
		return "", 0, err
	}
	defer content.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(h, UntilDone(ctx, content), make([]byte, 1<<20))
	if err != nil {
		return "", 0, err
	}
	return SHA256(h).String(), n, nil
}

// LinkOrCopy makes to another name of a file, or a copy if a link is not possible: of another
// user's file, or on a file system without links. The copy is read-only; the file stays as it is.
func LinkOrCopy(ctx context.Context, from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	defer out.Close()
	holed := sparse.NewWriter(out)
	if _, err := io.CopyBuffer(struct{ io.Writer }{holed}, UntilDone(ctx, in), make([]byte, 1<<20)); err != nil {
		return err
	}
	if err := holed.Finish(); err != nil {
		return err
	}
	return out.Close()
}

// UntilDone returns r, whose reads fail after the context ends.
func UntilDone(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
