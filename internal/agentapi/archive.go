package agentapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Format is the format of an archive. Empty means, for unpacking, that the first bytes of the
// archive tell, and for packing [FormatTarGzip].
type Format string

// The formats.
const (
	FormatTarGzip Format = "tar.gz"
	FormatZip     Format = "zip"
	FormatTar     Format = "tar"
)

const (
	// MaxArchiveEntries bounds the number of entries when an archive is unpacked.
	MaxArchiveEntries = 250_000
	// MaxArchiveRatio bounds the unpacked size, as a multiple of the archive's size, once more than
	// ArchiveRatioFrom bytes are unpacked.
	MaxArchiveRatio  = 400
	ArchiveRatioFrom = 64 << 20
)

// RestoreLayer applies a layer to the root of a sandbox that has not been configured: a tar in the form of
// the driver's WriteLayer, which removes files by whiteouts. Owners, modes, times and extended attributes
// are restored, and zeros become holes. After an error part of it is applied. When reading r fails, that
// error is returned.
//
// Errors of the agent: CodeInvalid for a configured sandbox and for a damaged layer; CodeDiskFull.
func (f Files) RestoreLayer(ctx context.Context, r io.Reader) error {
	source := &source{r: r}
	err := f.client.call(ctx, request{method: http.MethodPut, path: "/files/layer", size: -1, body: source.body, large: true}, nil)
	if failed := source.end(); err != nil && failed != nil {
		return fmt.Errorf("restore files: read layer: %w", failed)
	}
	return err
}

// ArchiveOptions are options of unpacking.
type ArchiveOptions struct {
	Format Format
	// User owns the unpacked files; "" is the configured default.
	User string
	// KeepLinks accepts symlinks that lead out of the directory instead of refusing them. Nothing
	// is ever written through such a symlink.
	KeepLinks bool
}

// PackArchive returns the directory or file at path as an archive. The names in it are relative to
// the directory; the archive of a file has that file as its only entry. Symlinks are packed as
// symlinks; special files and other filesystems mounted below are skipped. The reader fails with an
// error other than io.EOF when the archive is incomplete. ctx applies to reading also, and the
// caller closes the reader, which ends the packing.
//
// Errors of the agent: CodeNoFile, CodeDenied, CodeInvalid for an unknown format or a path that
// is neither file nor directory.
func (f Files) PackArchive(ctx context.Context, path string, format Format) (io.ReadCloser, error) {
	q := f.query(path)
	q.Set("format", string(format))
	r := request{method: http.MethodGet, path: "/files/archive", query: q, transfer: true, large: true, again: true}
	a, err := f.client.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return &fileBody{ctx: ctx, client: f.client, request: r, answer: a}, nil
}

// UnpackArchive unpacks the archive r below the directory at path, which it creates, with its
// parents, if it is missing. Existing files with the same name are replaced, and directories
// merged. Nothing outside of the directory is changed. CodeInvalid refuses an archive that contains
// absolute paths or "..", links that lead out of the directory, devices, pipes or sockets, or more
// than [MaxArchiveEntries] entries, and an archive that unpacks to more than [MaxArchiveRatio]
// times its size. Entries before the offending entry remain, except for a zip, which is checked
// first. When reading r fails, that error is returned.
//
// Further errors of the agent: CodeNotDir, CodeIsDir and CodeNotEmpty for existing files in the
// way, CodeDenied, CodeDiskFull.
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
		body: source.body, large: true,
	}
	err := f.client.call(ctx, req, nil)
	if failed := source.end(); err != nil && failed != nil {
		return fmt.Errorf("unpack into %s: read archive: %w", path, failed)
	}
	return err
}
