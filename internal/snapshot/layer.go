package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// readTimeout bounds the reading of the files of a sandbox.
const readTimeout = 10 * time.Minute

// writeFiles writes the files that a sandbox has written into a file as a layer, and returns the digest of the
// root filesystem below.
func (s *Service) writeFiles(b *box.Box, into *os.File) (base string, err error) {
	reader, err := s.boxes.Snapshotter()
	if err != nil {
		return "", err
	}
	err = b.Exclusively(s.ctx, box.Snapshot, func() error {
		sb := b.Sandbox()
		base = sb.ImageDigest
		ctx, cancel := context.WithTimeout(b.Context(), readTimeout)
		defer cancel()
		switch sb.State {
		case sandbox.Running:
			defer b.BeginSave()() // the sandbox stands still, and connections may time out
			return reader.WriteLayer(ctx, b.ID, into)
		case sandbox.Paused:
			if err := s.archives.Fetch(b.Context(), b); err != nil {
				return err
			}
			return s.writePaused(ctx, reader, &sb, into)
		default:
			return box.StateError(&sb)
		}
	})
	return base, err
}

// writePaused is writeFiles for a paused sandbox. If no layer was saved beside the memory, it
// restores the sandbox in a hidden box, whose files it writes.
func (s *Service) writePaused(ctx context.Context, reader driver.Snapshotter, sb *sandbox.Sandbox, into io.Writer) error {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return err
	}
	path := s.saved.Path(sb.ID, sb.Saved)
	layer, err := saver.OpenLayer(path)
	if err == nil {
		_, err = io.Copy(into, layer)
		return errors.Join(err, layer.Close())
	}
	if code := sandbox.CodeOf(err); code != sandbox.NotFound && code != sandbox.Unsupported {
		return fmt.Errorf("files of paused sandbox %s: %w", sb.ID, err)
	}
	if err := saver.CanRestore(path); err != nil {
		return sandbox.Wrap(sandbox.Unsupported, err, "%s", sandbox.Explain("the saved state cannot be read on this host", err))
	}
	_, rootfs, err := s.images.Resolve(ctx, sb.ImageDigest)
	if err != nil {
		return fmt.Errorf("image of sandbox %s: %w", sb.ID, err)
	}
	hidden, err := s.boxes.Restore(ctx, saver, sb, rootfs, path)
	if err != nil {
		return fmt.Errorf("restore sandbox %s for a snapshot: %w", sb.ID, err)
	}
	defer s.boxes.Destroy(hidden)
	return reader.WriteLayer(ctx, hidden.ID, into)
}
