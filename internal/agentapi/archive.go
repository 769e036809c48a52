package agentapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Format is how an archive is packed. The empty one means, for what comes in,
// that its first bytes say so, and for what goes out [FormatTarGzip].
type Format string

// The formats.
const (
	FormatTarGzip Format = "tar.gz"
	FormatZip     Format = "zip"
	FormatTar     Format = "tar"
)

const (
	// MaxArchiveEntries bounds the entries of an archive that is unpacked.
	MaxArchiveEntries = 250_000
	// MaxArchiveRatio bounds what an archive may unpack to, as a multiple of its own
	// size, once that is more than ArchiveRatioFrom bytes.
	MaxArchiveRatio  = 400
	ArchiveRatioFrom = 64 << 20
)

// ArchiveOptions say how an archive is unpacked.
type ArchiveOptions struct {
	Format Format
	// User owns what is unpacked; "" is the configured default.
	User string
	// KeepLinks keeps symlinks that lead out of the directory instead of refusing
	// them. Nothing is ever written through one.
	KeepLinks bool
}

// PackArchive returns the directory or file at path as an archive. The names in
// it are relative to the directory; a file is alone in it under its own name.
// Symlinks are kept as they are; what is neither file, directory nor symlink is
// left out, and so are other filesystems mounted below. The reader fails with
// something else than io.EOF when the archive is not whole; the context holds
// for it too, and the caller closes it, which ends the packing.
//
// Errors of the agent: CodeNotFound, CodeDenied, CodeInvalid for an unknown
// format or a path that is neither file nor directory.
func (f Files) PackArchive(ctx context.Context, path string, format Format) (io.ReadCloser, error) {
	q := f.query(path)
	q.Set("format", string(format))
	r := request{method: http.MethodGet, path: "/files/archive", query: q, transfer: true, again: true}
	a, err := f.client.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return &fileBody{ctx: ctx, client: f.client, request: r, answer: a}, nil
}

// UnpackArchive unpacks everything r holds below the directory at path, which is
// made with its parents when it is missing. What is there under the same name is
// replaced, directories are merged. Nothing outside of the directory is touched.
// An archive that names absolute paths or "..", links that lead out of the
// directory, devices, pipes or sockets, that has more than [MaxArchiveEntries]
// entries or unpacks to more than [MaxArchiveRatio] times its size is refused
// with CodeInvalid; what was unpacked before its offending entry stays, of a zip
// nothing. When reading r fails, that error is returned.
//
// Further errors of the agent: CodeNotDir, CodeIsDir and CodeNotEmpty for what is
// in the way, CodeDenied, CodeDiskFull.
func (f Files) UnpackArchive(ctx context.Context, path string, r io.Reader, opts ArchiveOptions) error {
	q := f.query(path)
	q.Set("format", string(opts.Format))
	if opts.User != "" {
		q.Set("user", opts.User)
	}
	if opts.KeepLinks {
		q.Set("keep_links", "true")
	}
	source := &source{r: r}
	req := request{
		method: http.MethodPut, path: "/files/archive", query: q, size: -1,
		body: source.body,
	}
	err := f.client.call(ctx, req, nil)
	if failed := source.end(); err != nil && failed != nil {
		return fmt.Errorf("unpack into %s: read archive: %w", path, failed)
	}
	return err
}
