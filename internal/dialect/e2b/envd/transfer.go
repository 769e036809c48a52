package envd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// filesMax bounds the files of one upload.
	filesMax = 10_000
	// compressMin is the size in bytes from which on a download is compressed for clients that accept it.
	compressMin = 1024
)

// transfers carries files over HTTP.
type transfers struct {
	calls       *guest.Calls
	users       *accounts
	credentials e2b.Credentials
}

// handler returns the HTTP handler of a call.
func (t *transfers) handler(h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			e2b.WriteError(w, r, err)
		}
	})
}

// compressed compresses the downloads of a handler for clients that accept gzip, and for no part of a file. The
// compression keeps no state between two writes: many slow clients must not hold memory.
func compressed(h http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(compressMin), gzhttp.EnableZstd(false), gzhttp.CompressionLevel(gzip.StatelessCompression),
		gzhttp.ContentTypeFilter(gzhttp.CompressAllContentTypeFilter))
	if err != nil {
		return nil, err
	}
	return wrap(h), nil
}

// authorize returns an error unless a request has the token of the sandbox or a valid signature. It
// compares the signature with the path as the client gave it.
func (t *transfers) authorize(v *visit, q url.Values, operation string) error {
	if v.token {
		return nil
	}
	s := e2b.Signed{Path: q.Get("path"), Operation: operation, User: q.Get("username")}
	signature, expiration := q.Get("signature"), q.Get("signature_expiration")
	if signature == "" {
		return sandbox.Errorf(sandbox.Unauthenticated, "missing signature query parameter")
	}
	if expiration != "" {
		n, err := strconv.ParseInt(expiration, 10, 64)
		if err != nil || n < 1 {
			return sandbox.Errorf(sandbox.Unauthenticated, "invalid signature expiration")
		}
		s.Expires = n
	}
	ok, err := t.credentials.CheckSignature(v.sb.ID, s, signature)
	switch {
	case err != nil:
		return err
	case !ok:
		return sandbox.Errorf(sandbox.Unauthenticated, "invalid signature")
	case s.Expires != 0 && time.Now().Unix() > s.Expires:
		return sandbox.Errorf(sandbox.Unauthenticated, "signature is already expired")
	}
	return nil
}

func (t *transfers) download(w http.ResponseWriter, r *http.Request) error {
	ctx, q := r.Context(), r.URL.Query()
	v := visitOf(ctx)
	if err := t.authorize(v, q, "read"); err != nil {
		return err
	}
	acc, _, err := t.users.user(ctx, v, q.Get("username"))
	if err != nil {
		return err
	}
	name := acc.resolve(q.Get("path"))
	body, info, err := t.open(ctx, v, name)
	if err != nil {
		return err
	}
	c := &content{ctx: ctx, calls: t.calls, visit: v, path: name, size: info.Size, body: body}
	defer c.Close() //nolint:errcheck // it was read
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	http.ServeContent(w, r, path.Base(name), info.ModTime, c)
	if c.short {
		panic(http.ErrAbortHandler) // a compressed answer has no length from which the client would see it
	}
	return nil
}

// open opens a file to read it. Errors: FileNotFound; Invalid for a directory.
func (t *transfers) open(ctx context.Context, v *visit, name string) (io.ReadCloser, agentapi.FileInfo, error) {
	body, info, err := t.calls.ReadFile(ctx, v.caller, v.ref, name, 0, -1)
	switch sandbox.CodeOf(err) {
	case sandbox.FileNotFound:
		err = sandbox.Errorf(sandbox.FileNotFound, "path '%s' does not exist", sandbox.OneLine(name))
	case sandbox.Conflict:
		err = sandbox.InvalidField("", "path '%s' is a directory", sandbox.OneLine(name))
	}
	return body, info, err
}

// content is a file of a sandbox that can be read from any byte on.
type content struct {
	ctx   context.Context
	calls *guest.Calls
	visit *visit
	path  string
	size  int64
	at    int64
	// body is the open file, and bodyAt the byte that follows in it.
	body   io.ReadCloser
	bodyAt int64
	// short is whether less of the file could be read than there was when it was opened.
	short bool
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if c.body != nil && c.bodyAt != c.at {
		_ = c.body.Close() // nothing more is read of it
		c.body = nil
	}
	if c.body == nil {
		var err error
		if c.body, _, err = c.calls.ReadFile(c.ctx, c.visit.caller, c.visit.ref, c.path, c.at, -1); err != nil {
			c.short = true
			return 0, err
		}
		c.bodyAt = c.at
	}
	n, err := c.body.Read(p)
	c.at += int64(n)
	c.bodyAt = c.at
	c.short = c.short || err != nil && c.at < c.size
	return n, err
}

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return c.at, errors.New("negative position")
	}
	c.at = offset
	return offset, nil
}

// Close closes the file.
func (c *content) Close() error {
	if c.body == nil {
		return nil
	}
	return c.body.Close()
}

// written describes an uploaded file.
type written struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
	// Metadata is the metadata that the upload gave the file.
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (t *transfers) upload(w http.ResponseWriter, r *http.Request) error {
	ctx, q := r.Context(), r.URL.Query()
	v := visitOf(ctx)
	if err := t.authorize(v, q, "write"); err != nil {
		return err
	}
	acc, _, err := t.users.user(ctx, v, q.Get("username"))
	if err != nil {
		return err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return sandbox.InvalidField("Content-Type", "must be multipart/form-data or application/octet-stream")
	}
	body, err := unpacked(r)
	if err != nil {
		return err
	}
	metadata, err := metadataOf(r.Header)
	if err != nil {
		return err
	}
	up := &uploading{transfers: t, ctx: ctx, visit: v, acc: acc, metadata: metadata, seen: map[string]bool{}, done: []written{}}
	switch kind {
	case "application/octet-stream":
		if q.Get("path") == "" {
			return sandbox.InvalidField("path", "must be set")
		}
		err = up.file(q.Get("path"), body, sizeOf(r))
	case "multipart/form-data":
		err = up.parts(multipart.NewReader(body, params["boundary"]), q.Get("path"))
	default:
		err = sandbox.InvalidField("Content-Type", "must be multipart/form-data or application/octet-stream")
	}
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusOK, up.done)
	return nil
}

// partStart is the number of bytes that are read of a part to find out whether it is small. The headers of a part have no size.
const partStart = 32 << 10

// sizeOf returns how many bytes the unpacked body of a request has, negative if that is not known.
func sizeOf(r *http.Request) int64 {
	if strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		return -1
	}
	return r.ContentLength
}

// unpacked returns the body of a request without its compression. Errors: Invalid, also of its reads.
func unpacked(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, unreadable(err)
		}
		return unpacking{z}, nil
	default:
		return nil, sandbox.InvalidField("Content-Encoding", "must be gzip or identity, not %q", sandbox.Excerpt(encoding))
	}
}

// unpacking is a body that was compressed.
type unpacking struct{ z *gzip.Reader }

// Read implements io.Reader.
func (u unpacking) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if err != nil && err != io.EOF {
		err = unreadable(err)
	}
	return n, err
}

// unreadable explains an error of the compression, and keeps an error of the connection.
func unreadable(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return sandbox.Wrap(sandbox.Invalid, err, "the body is not the gzip that Content-Encoding says it is")
	}
	return err
}

// uploading is an upload under way.
type uploading struct {
	*transfers
	ctx   context.Context
	visit *visit
	acc   account
	seen  map[string]bool
	done  []written
	// metadata is the metadata of each file, by the keys of the server.
	metadata map[string]string
}

// parts writes the files of a form. A part without a name of its own goes to path.
func (u *uploading) parts(form *multipart.Reader, to string) error {
	content := bufio.NewReaderSize(nil, partStart)
	for {
		part, err := form.NextPart()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return sandbox.Wrap(sandbox.Invalid, err, "the body is no valid form")
		case part.FormName() != "file":
			continue
		}
		name := to
		if name == "" { // Part.FileName would drop its directories
			if _, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition")); err == nil {
				name = params["filename"]
			}
		}
		if name == "" {
			return sandbox.InvalidField("path", "must be set, or each file have a name")
		}
		content.Reset(part)
		size := int64(-1)
		if start, err := content.Peek(partStart); err == io.EOF { // another error is there again when it is read
			size = int64(len(start))
		}
		if err := u.file(name, content, size); err != nil {
			return err
		}
	}
}

// file writes one file, of about size bytes; negative if that is not known.
func (u *uploading) file(name string, r io.Reader, size int64) error {
	p := u.acc.resolve(name)
	if u.seen[p] {
		return sandbox.InvalidField("path", "the file '%s' is uploaded twice", sandbox.OneLine(p))
	}
	if len(u.seen) >= filesMax {
		return sandbox.InvalidField("files", "must be at most %d", filesMax)
	}
	u.seen[p] = true
	opts := agentapi.WriteOptions{User: u.acc.name, Parents: true, Size: size, Metadata: u.metadata}
	info, err := u.calls.WriteFile(u.ctx, u.visit.caller, u.visit.ref, p, r, opts)
	if code := sandbox.CodeOf(err); code == sandbox.Conflict {
		return sandbox.InvalidField("", "path is a directory, or leads through a file: %s", sandbox.OneLine(p))
	}
	if err != nil {
		return err
	}
	u.done = append(u.done, written{Path: p, Name: path.Base(p), Type: "file", Metadata: shownMetadata(info.Metadata)})
	return nil
}

// envs answers with the environment variables of the sandbox.
func (t *transfers) envs(w http.ResponseWriter, r *http.Request) error {
	env := environment(visitOf(r.Context()), nil)
	e2b.WriteJSON(w, http.StatusOK, env)
	return nil
}

// metrics answers with what the sandbox uses. The use of processors is the average since its start.
func (t *transfers) metrics(w http.ResponseWriter, r *http.Request) error {
	v := visitOf(r.Context())
	now, err := t.calls.Stats(r.Context(), v.caller, v.ref)
	if err != nil {
		return err
	}
	const mebibyte = 1 << 20
	cores := (now.CPULimitMilli + 999) / 1000
	used := 0.0
	if spent := now.Time.Sub(v.sb.StartedAt); spent > 0 && cores > 0 {
		used = float64(now.CPUNanos) / float64(spent) / float64(cores) * 100
	}
	e2b.WriteJSON(w, http.StatusOK, map[string]any{
		"ts": now.Time.Unix(), "cpu_count": cores, "cpu_used_pct": used, "mem_total": now.MemoryLimit, "mem_used": now.MemoryBytes, "mem_cache": 0,
		"mem_total_mib": now.MemoryLimit / mebibyte, "mem_used_mib": now.MemoryBytes / mebibyte, "disk_used": now.DiskBytes, "disk_total": now.DiskLimit,
	})
	return nil
}
