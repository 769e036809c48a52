package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/modbox/modbox/client/wire"
)

// File is a file to write.
type File struct {
	Path    string
	Content []byte
	Mode    uint32 // permission bits of a new file; 0 is 0644
}

// WriteMany writes files in their order, each all or nothing, with missing parent directories: at
// most 1000 with 32 MiB together. The error names a file; the files before it are written.
func (c *Files) WriteMany(ctx context.Context, ref string, files []File) error {
	body := wire.WriteFiles{Files: make([]wire.NewFile, len(files))}
	for i, f := range files {
		body.Files[i] = wire.NewFile{Path: f.Path, Content: append([]byte{}, f.Content...)} // null is no content
		if f.Mode != 0 {
			body.Files[i].Mode = octal(f.Mode)
		}
	}
	return c.call(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "files", "batch"), body: body, repeat: true}, nil)
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }

// Format is the format of an archive.
type Format string

// The formats.
const (
	TarGzip Format = "tar.gz"
	Zip     Format = "zip"
	Tar     Format = "tar"
)

func archiveQuery(path string, format Format) url.Values {
	q := url.Values{"path": {path}}
	if format != "" {
		q.Set("format", string(format))
	}
	return q
}

// UploadArchiveOptions configure the unpacking of an archive.
type UploadArchiveOptions struct {
	Format Format // if empty, the server detects it
	// KeepLinks permits symlinks that lead out of the directory.
	KeepLinks bool
}

// UploadArchive unpacks the archive r below a directory of the sandbox, which it makes if it is
// missing. It is repeated as [Files.Write] is.
//
// Errors: Invalid for an archive that is damaged, or hostile: with absolute paths, "..", links that
// lead out, devices, or an implausible compression ratio; Conflict for a file where the archive has
// a directory, or the reverse; DiskFull.
func (c *Files) UploadArchive(ctx context.Context, ref, path string, r io.Reader, o UploadArchiveOptions) error {
	q := archiveQuery(path, o.Format)
	if o.KeepLinks {
		q.Set("keep_links", "true")
	}
	return c.call(ctx, request{method: http.MethodPut, path: sandboxPath(ref, "files", "archive"), query: q, stream: r, repeat: true}, nil)
}

// DownloadArchive opens a directory or file of the sandbox as an archive; the empty format is
// [TarGzip]. It is packed while it is read: reading fails if it cannot be completed. The caller
// closes it.
func (c *Files) DownloadArchive(ctx context.Context, ref, path string, format Format) (io.ReadCloser, error) {
	return c.open(ctx, sandboxPath(ref, "files", "archive"), archiveQuery(path, format))
}

// FileEventType is the type of a change of a file.
type FileEventType string

// The types. A rename is two events.
const (
	FileCreated    FileEventType = "created"
	FileModified   FileEventType = "modified"
	FileAttributes FileEventType = "attributes"
	FileRemoved    FileEventType = "removed"
	FileMovedFrom  FileEventType = "moved_from"
	FileMovedTo    FileEventType = "moved_to"
	// FileOverflow says that events were lost, FileLimit that the directory at the
	// event's path is not watched, and maybe others, because there are too many.
	FileOverflow FileEventType = "overflow"
	FileLimit    FileEventType = "limit"
)

// FileEvent is a change of a file.
type FileEvent struct {
	Type      FileEventType `json:"type"`
	Path      string        `json:"path,omitempty"`
	Directory bool          `json:"directory,omitempty"`
}

// FileWatch is a watch of files. One goroutine at a time may call Next; any may call Close.
type FileWatch struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// Watch watches a directory, or a file; recursive includes all directories below, and later
// directories. The watch reports changes from the return of Watch until ctx ends.
//
// Errors: NotFound; FileNotFound; QuotaExceeded when the sandbox has too many watches.
func (c *Files) Watch(ctx context.Context, ref, path string, recursive bool) (*FileWatch, error) {
	q := url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: sandboxPath(ref, "files", "watch"), query: q, repeat: true})
	if err != nil {
		return nil, err
	}
	w := &FileWatch{body: resp.Body, lines: bufio.NewReaderSize(resp.Body, 64<<10)}
	if ready, err := w.next(); err != nil || ready.Type != "ready" {
		w.Close()
		return nil, fmt.Errorf("watch %s: begins with %q: %w", path, ready.Type, err)
	}
	return w, nil
}

// Next returns the next event, or io.EOF after the directory is gone. Other errors mean that the
// connection broke.
func (w *FileWatch) Next() (FileEvent, error) {
	for {
		e, err := w.next()
		if err != nil {
			return FileEvent{}, err
		}
		switch e.Type {
		case FileCreated, FileModified, FileAttributes, FileRemoved, FileMovedFrom, FileMovedTo, FileOverflow, FileLimit:
			return e, nil
		case "ended":
			return FileEvent{}, io.EOF
		}
	}
}

// next returns the next line, unless it is an error.
func (w *FileWatch) next() (FileEvent, error) {
	line, err := w.lines.ReadBytes('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return FileEvent{}, fmt.Errorf("read events: %w", err)
	}
	var e struct {
		FileEvent
		Code    Code   `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return FileEvent{}, fmt.Errorf("read events: %w", err)
	}
	if e.Type == "error" {
		return FileEvent{}, &Error{Code: e.Code, Message: e.Message}
	}
	return e.FileEvent, nil
}

// Close ends the watch.
func (w *FileWatch) Close() error { return w.body.Close() }
