package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/modbox/modbox/client/wire"
)

// Files has the calls for files of a sandbox. Paths that are not absolute begin at the image's
// working directory.
type Files struct{ *transport }

// Read opens a file for reading. The caller closes it.
//
// Errors: NotFound; FileNotFound; Invalid if path is not a regular file.
func (c *Files) Read(ctx context.Context, ref, path string) (io.ReadCloser, error) {
	return c.open(ctx, sandboxPath(ref, "files"), url.Values{"path": {path}})
}

// FileChange is a name that differs between a sandbox and its image.
type FileChange = wire.FileChange

// Diff lists what a sandbox has written at a path and below, all for "". Errors: NotFound; FileNotFound; QuotaExceeded; Timeout.
func (c *Files) Diff(ref, path string) *List[FileChange] {
	return newList[FileChange](c.transport, sandboxPath(ref, "diff"), map[string]string{"path": path})
}

// Original opens a file of the image or snapshot that a sandbox was made from. The caller closes it.
func (c *Files) Original(ctx context.Context, ref, path string) (io.ReadCloser, error) {
	return c.open(ctx, sandboxPath(ref, "diff", "original"), url.Values{"path": {path}})
}

// Write writes a file of any size from r, all or nothing. If the connection breaks and r is an
// [io.Seeker], such as a file or a [bytes.Reader], the client writes it again from the position that r had.
//
// Errors: NotFound; FileNotFound for a missing parent; DiskFull.
func (c *Files) Write(ctx context.Context, ref, path string, r io.Reader, o WriteOptions) (*FileInfo, error) {
	q := url.Values{"path": {path}, "user": {o.User}, "parents": {strconv.FormatBool(o.Parents)}}
	if o.Mode != 0 {
		q.Set("mode", "0"+strconv.FormatUint(uint64(o.Mode), 8))
	}
	if len(o.Metadata) > 0 {
		text, _ := json.Marshal(o.Metadata) // a map of strings has JSON
		q.Set("metadata", string(text))
	}
	return fetch[FileInfo](ctx, c.transport, request{method: http.MethodPut, path: sandboxPath(ref, "files"), query: q, stream: r, repeat: true})
}

// Stat describes a path, not following a last symlink. Errors: NotFound; FileNotFound.
func (c *Files) Stat(ctx context.Context, ref, path string) (*FileInfo, error) {
	return fetch[FileInfo](ctx, c.transport, request{method: http.MethodGet, path: sandboxPath(ref, "files", "stat"), query: url.Values{"path": {path}}, repeat: true})
}

// List lists a directory, sorted by name. Errors: NotFound; FileNotFound; Invalid if path
// is not a directory.
func (c *Files) List(ref, path string) *List[FileInfo] {
	return newList[FileInfo](c.transport, sandboxPath(ref, "files", "list"), map[string]string{"path": path})
}

// Mkdir makes a directory and returns it. With parents it also makes missing parents, and accepts
// an existing directory. Errors: Exists; NotFound; FileNotFound for a missing parent.
func (c *Files) Mkdir(ctx context.Context, ref, path string, parents bool) (*FileInfo, error) {
	body := wire.Mkdir{Path: path, Parents: parents}
	return fetch[FileInfo](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "files", "mkdir"), body: body})
}

// Move renames a path and returns it at its new place. Errors: NotFound; FileNotFound; Exists
// when to exists and overwrite is not set.
func (c *Files) Move(ctx context.Context, ref, from, to string, overwrite bool) (*FileInfo, error) {
	body := wire.Move{From: from, To: to, Overwrite: overwrite}
	return fetch[FileInfo](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "files", "move"), body: body})
}

// Delete deletes a file or empty directory, or everything below with recursive.
func (c *Files) Delete(ctx context.Context, ref, path string, recursive bool) error {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "true")
	}
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(ref, "files"), query: q}, nil)
}
