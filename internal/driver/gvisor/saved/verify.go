package saved

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
	"github.com/modbox/modbox/internal/sandbox"
)

// Verifying begins to compare the files of a checkpoint, as Open returns them, with their
// digests, while the box boots and loads them, so that a restore takes no longer. verified waits
// for the result; stop ends the work, after which the files may be closed. A checkpoint without
// digests is accepted unverified.
func (m Manifest) Verifying(ctx context.Context, files Files) (verified func() error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = m.verify(ctx, files)
	}()
	return func() error { <-done; return err }, func() { cancel(); <-done }
}

// verify compares the files of a checkpoint with their digests. Errors: Unsupported, naming the
// damaged file; the context's.
func (m Manifest) verify(ctx context.Context, files Files) error {
	if len(m.Sums) == 0 {
		return nil
	}
	for i, name := range names {
		// Finds files without digests also: no file is empty, and Sums{} belongs to an empty file.
		if err := m.Sums[name].Verify(ctx, files[i]); err != nil {
			return damaged(ctx, name, err)
		}
	}
	return nil
}

// damaged returns the error for a file of a checkpoint that cannot be read or differs from its
// digest.
func damaged(ctx context.Context, name string, err error) error {
	var m *chunksum.Mismatch
	if errors.As(err, &m) {
		return sandbox.Errorf(sandbox.Unsupported, "the saved state is damaged: %s: %v", name, m)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sandbox.Wrap(sandbox.Unsupported, err, "the saved state is damaged: %s cannot be read", name)
}

// Verify reads a whole checkpoint and reports separately whether its memory, and the files beside
// it, are intact, as [driver.Checkpointer] says.
func Verify(ctx context.Context, dir string) (memory, files error) {
	return verifyMemory(ctx, dir), verifyLayer(ctx, dir)
}

func verifyMemory(ctx context.Context, dir string) error {
	m, files, err := Open(dir)
	if err != nil {
		return err
	}
	defer files.Close()
	return m.verify(ctx, files)
}

func verifyLayer(ctx context.Context, dir string) error {
	layer, err := OpenLayer(dir)
	if err != nil {
		return err
	}
	for err == nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		_, err = io.CopyN(io.Discard, layer, chunksum.ChunkBytes)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, layer.Close())
}

// OpenLayer returns the files that were saved with a checkpoint, as [driver.Checkpointer] says.
func OpenLayer(dir string) (io.ReadCloser, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		// A checkpoint from before digests has no copy of its manifest. Its files are better than
		// nothing.
		if _, lerr := os.Lstat(filepath.Join(dir, ManifestCopy)); !errors.Is(lerr, fs.ErrNotExist) {
			return nil, sandbox.Wrap(sandbox.Unsupported, err, "the saved state is damaged: its files cannot be verified")
		}
	}
	f, err := openSaved(dir, LayerName)
	sums, known := m.Sums[LayerName]
	switch {
	case errors.Is(err, fs.ErrNotExist) && known:
		return nil, sandbox.Wrap(sandbox.Unsupported, err, "the saved state is damaged: its files are missing")
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandbox.Wrap(sandbox.NotFound, err, "no files were saved with the checkpoint")
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", LayerName, err)
	case !known:
		return f, nil
	}
	return &layerReader{Reader: sums.Reader(f), file: f}, nil
}

// layerReader reads a layer and compares it with its digests.
type layerReader struct {
	io.Reader
	file *os.File
}

func (l *layerReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(context.Background(), LayerName, err)
	}
	return n, err
}

func (l *layerReader) Close() error { return l.file.Close() }
