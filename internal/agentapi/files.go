package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// Files are the calls on the files of a sandbox. The Files of a [Client] accept any path; a
// relative path is relative to the default working directory of commands. The Files of
// [Client.Beneath] accept paths relative to a directory and cannot leave it.
type Files struct {
	client   *Client
	beneath  string
	metadata bool
}

// Beneath returns the calls on files below an absolute directory: every path is relative to it, and
// neither ".." nor a symlink leads out of it, even if the sandbox changes files meanwhile. It sends
// nothing.
func (c *Client) Beneath(dir string) Files { return Files{client: c, beneath: dir} }

// WithMetadata returns the calls whose Stat and List return the metadata of files also, which costs the agent
// time for each file. It sends nothing.
func (f Files) WithMetadata() Files {
	f.metadata = true
	return f
}

// query returns the parameters that all calls have.
func (f Files) query(path string) url.Values {
	q := url.Values{"path": {path}}
	if f.beneath != "" {
		q.Set("beneath", f.beneath)
	}
	return q
}

// describing returns the parameters of a call that describes files.
func (f Files) describing(path string) url.Values {
	q := f.query(path)
	if f.metadata {
		q.Set("metadata", "true")
	}
	return q
}

// ReadFile opens a regular file and returns length bytes from offset on, fewer when the file is
// shorter, or all that follow when length is negative. The reader fails with an error other than
// io.EOF when fewer bytes arrive than the agent announced. ctx applies to reading also, and the
// caller closes the reader.
//
// Errors of the agent: CodeNoFile, CodeIsDir, CodeDenied, CodeInvalid for a path that is not a
// regular file or an offset beyond its end.
func (f Files) ReadFile(ctx context.Context, path string, offset, length int64) (io.ReadCloser, FileInfo, error) {
	q := f.query(path)
	q.Set("offset", number(offset))
	q.Set("length", number(length))
	q.Set("most", number(LargeTransfer))
	r := request{method: http.MethodGet, path: "/files", query: q, transfer: true, again: true}
	a, err := f.client.open(ctx, r)
	if err == nil && a.Header.Get(LargeHeader) != "" {
		a.close()
		q.Del("most")
		r.large = true
		a, err = f.client.open(ctx, r)
	}
	if err != nil {
		return nil, FileInfo{}, err
	}
	info, err := parseInfoHeader(a.Header)
	if err != nil {
		a.close()
		return nil, FileInfo{}, err
	}
	return &fileBody{ctx: ctx, client: f.client, request: r, answer: a}, info, nil
}

// LargeHeader is the header of an answer without the content, which is larger than the call wants to have
// on this connection.
const LargeHeader = "Modbox-Large"

// InfoHeader is the header with the FileInfo of the file whose content is the body.
const InfoHeader = "Modbox-File"

// fileBody is the content of a file.
type fileBody struct {
	ctx     context.Context
	client  *Client
	request request
	answer  *answer
}

func (b *fileBody) Read(p []byte) (int, error) {
	n, err := b.answer.Body.Read(p)
	if err != nil && err != io.EOF {
		err = b.client.explain(b.ctx, b.request, b.answer.conn, err)
	}
	return n, err
}

func (b *fileBody) Close() error {
	b.answer.close()
	return nil
}

// WriteFile creates or replaces a file with the content of r, atomically: the path does not change
// before WriteFile returns nil. When reading r fails, that error is returned. A blocked read of r
// may continue after ctx has ended. Beneath in opts takes precedence over [Client.Beneath].
//
// Errors of the agent: CodeNoFile for a missing parent, CodeExists, CodeIsDir, CodeNotDir,
// CodeDenied, CodeDiskFull, CodeInvalid for a path that leaves Beneath, and for metadata that the agent does
// not know, after it has written the file.
func (f Files) WriteFile(ctx context.Context, path string, r io.Reader, opts WriteOptions) (FileInfo, error) {
	if opts.Beneath == "" {
		opts.Beneath = f.beneath
	}
	content := &source{r: r}
	req := request{
		method: http.MethodPut, path: "/files", query: opts.query(path), size: -1,
		body: content.body, large: opts.Size < 0 || opts.Size >= LargeTransfer,
	}
	var info FileInfo
	err := f.client.call(ctx, req, &info)
	if failed := content.end(); err != nil && failed != nil {
		return FileInfo{}, fmt.Errorf("write %s: read content: %w", path, failed)
	}
	if err == nil && !maps.Equal(info.Metadata, opts.Metadata) { // an old agent ignores it
		return FileInfo{}, &Error{Code: CodeInvalid, Message: "metadata: the file was written, but without metadata: the sandbox was started by a version of Modbox that has none; create another, or leave out metadata"}
	}
	return info, err
}

func (o WriteOptions) query(path string) url.Values {
	q := url.Values{"path": {path}}
	for key, value := range map[string]string{"user": o.User, "beneath": o.Beneath} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if o.Mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(o.Mode), 8))
	}
	for key, set := range map[string]bool{"parents": o.Parents, "exclusive": o.Exclusive} {
		if set {
			q.Set(key, "true")
		}
	}
	if len(o.Metadata) > 0 {
		text, _ := json.Marshal(o.Metadata) // a map of strings has JSON
		q.Set("metadata", string(text))
	}
	return q
}

// Stat describes a path without following a last symlink.
func (f Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	var info FileInfo
	err := f.client.call(ctx, request{method: http.MethodGet, path: "/files/stat", query: f.describing(path), again: true}, &info)
	return info, err
}

// List returns the entries of a directory sorted by name, beginning after the name after: at most
// limit, and at most [MaxListEntries], which is also the meaning of 0.
func (f Files) List(ctx context.Context, path, after string, limit int) (FileList, error) {
	q := f.describing(path)
	if after != "" {
		q.Set("after", after)
	}
	q.Set("limit", number(limit))
	var list FileList
	err := f.client.call(ctx, request{method: http.MethodGet, path: "/files/list", query: q, again: true}, &list)
	return list, err
}

// Mkdir creates a directory. If it exists, that is CodeExists, unless Parents is set.
func (f Files) Mkdir(ctx context.Context, req MkdirRequest) error {
	if req.Beneath == "" {
		req.Beneath = f.beneath
	}
	return f.client.callJSON(ctx, "/files/mkdir", req, req.Parents)
}

// Move renames a path; regular files can be moved to another filesystem also.
func (f Files) Move(ctx context.Context, req MoveRequest) error {
	if req.Beneath == "" {
		req.Beneath = f.beneath
	}
	return f.client.callJSON(ctx, "/files/move", req, false)
}

// Remove removes a file, a symlink or an empty directory, and with recursive a directory with its
// content. Errors of the agent: CodeNoFile, CodeNotEmpty.
func (f Files) Remove(ctx context.Context, path string, recursive bool) error {
	q := f.query(path)
	q.Set("recursive", strconv.FormatBool(recursive))
	return f.client.call(ctx, request{method: http.MethodDelete, path: "/files", query: q}, nil)
}
