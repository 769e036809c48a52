package apitest

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Open returns a root filesystem with one file.
func (images) Open(context.Context, string) (snapshot.Rootfs, error) { return oneFile{}, nil }

// oneFile is a root filesystem with the file /srv/file.
type oneFile struct{}

func (oneFile) Stat(name string) (sandbox.SnapshotFile, error) {
	if name != "/srv/file" {
		return sandbox.SnapshotFile{}, sandbox.Errorf(sandbox.FileNotFound, "there is no %q", name)
	}
	return sandbox.SnapshotFile{Path: name, Mode: 0o640, Size: 4, ModTime: time.Unix(1e9, 0)}, nil
}

func (r oneFile) Content(name string) (sandbox.SnapshotFile, io.Reader, error) {
	f, err := r.Stat(name)
	return f, strings.NewReader("data"), err
}

func (oneFile) Files(ctx context.Context, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	return images{}.Files(ctx, "", q)
}

func (oneFile) Close() {}
