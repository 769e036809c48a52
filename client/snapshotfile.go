package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/modbox/modbox/client/wire"
)

// SnapshotFile is a name in a snapshot.
type SnapshotFile = wire.SnapshotFile

// SnapshotFileFilter selects files of a snapshot; the zero value selects the entries of its root
// directory.
type SnapshotFileFilter struct {
	Path      string // a directory, or a file alone
	Recursive bool   // all below
	SHA256    bool   // with hashes; pages may be shorter then
}

// Files lists files of a snapshot, including files of its image: a directory before its
// entries, else sorted by name. Errors: NotFound, Invalid, QuotaExceeded when the workspace is
// reading too many snapshots.
func (c *Snapshots) Files(ref string, f SnapshotFileFilter) *List[SnapshotFile] {
	return newList[SnapshotFile](c.transport, snapshotPath(ref)+"/files", map[string]string{
		"path": f.Path, "recursive": flag(f.Recursive), "sha256": flag(f.SHA256),
	})
}

// Download opens a directory or file of a snapshot, its root for "", as an archive; the
// empty format is [TarGzip], [Tar] is the other format. It is packed while it is read: reading
// fails if it cannot be completed. The caller closes it.
func (c *Snapshots) Download(ctx context.Context, ref, path string, format Format) (io.ReadCloser, error) {
	return c.open(ctx, snapshotPath(ref)+"/archive", archiveQuery(path, format))
}

// SnapshotDownload is an address of files of a snapshot, which answers a tar.gz without a token.
type SnapshotDownload = wire.SnapshotDownload

// Share returns an address under which a directory or file of a snapshot,
// its root for "", can be downloaded without a token, for an hour.
func (c *Snapshots) Share(ctx context.Context, ref, path string) (*SnapshotDownload, error) {
	q := url.Values{}
	if path != "" {
		q.Set("path", path)
	}
	d := new(SnapshotDownload)
	if err := c.call(ctx, request{method: http.MethodPost, path: snapshotPath(ref) + "/download", query: q}, d); err != nil {
		return nil, err
	}
	d.URL = c.base + d.URL
	return d, nil
}
