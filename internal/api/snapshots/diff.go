package snapshots

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Diffs are the routes of the differences between sandboxes and their images.
type Diffs struct{ Service *snapshot.Service }

type diffInput struct {
	route.SandboxRef
	Path   string `query:"path" maxLength:"1024" doc:"Changes of this absolute path and below it; all when omitted. Symlinks on the way are not followed."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Changes on a page at most."`
	Cursor string `query:"cursor" maxLength:"8192" doc:"next_cursor of the page before; the first page when omitted."`
}

// Register adds the routes.
func (h *Diffs) Register(m *route.Mux) {
	const diff = "/v1/sandboxes/{sandbox}/diff"
	route.JSON(m, huma.Operation{
		OperationID: "diff-sandbox", Method: http.MethodGet, Path: diff, Tags: []string{"files"},
		Summary: "List what differs from the image", Description: diffDescription,
	}, h.diff)
	m.Raw(huma.Operation{
		OperationID: "read-original-file", Method: http.MethodGet, Path: diff + "/original", Tags: []string{"files"},
		Summary:     "Read a file as it is in the image",
		Description: "A regular file of the image or snapshot that the sandbox was made from, of up to 16 MiB. Symlinks are not followed.",
		Parameters:  []*huma.Param{route.SandboxParam(), route.Query("path", "The absolute path.", true)},
		Responses: map[string]*huma.Response{"200": {Description: "The content", Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}},
	}, h.original)
}

func (h *Diffs) diff(ctx context.Context, in *diffInput) (*route.Body[wire.Page[wire.FileChange]], error) {
	var after []byte // a path need not be UTF-8
	if _, err := page.Parse(in.Cursor, pathOrder, &after); err != nil {
		return nil, err
	}
	part, err := h.Service.Diff(ctx, route.Caller(ctx), in.Ref, snapshot.DiffQuery{Path: in.Path, After: string(after), Limit: in.Limit})
	p := page.Page[snapshot.Change]{Items: part.Changes}
	if part.Next != "" {
		p.Next = page.Cursor(pathOrder, []byte(part.Next))
	}
	return route.Paged(p, err, shownChange)
}

func shownChange(c snapshot.Change) wire.FileChange {
	f := shownFile(c.File)
	out := wire.FileChange{
		Path: f.Path, Change: string(c.Kind), Type: f.Type, SizeBytes: f.SizeBytes, Mode: f.Mode, UID: f.UID, GID: f.GID, ModTime: f.ModTime, Target: f.Target,
	}
	if c.Before != nil {
		b := shownFile(*c.Before)
		out.Before = &wire.OriginalFile{Type: b.Type, SizeBytes: b.SizeBytes, Mode: b.Mode, UID: b.UID, GID: b.GID, ModTime: b.ModTime, Target: b.Target}
	}
	return out
}

// latest is the latest time that JSON has. An image may claim later times of its files.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// shownFile is the public side of a file.
func shownFile(f sandbox.SnapshotFile) wire.SnapshotFile {
	if f.ModTime.After(latest) {
		f.ModTime = latest
	}
	return wire.SnapshotFile{
		Path: f.Path, Type: string(typeOf(f.Mode)), SizeBytes: f.Size, Mode: route.Octal(sandbox.ModeBits(f.Mode)), UID: f.UID, GID: f.GID,
		ModTime: f.ModTime, Target: f.Target, SHA256: f.SHA256,
	}
}

// originalTime bounds the download of one file, because the server serves only a few of them at a time.
const originalTime = 5 * time.Minute

// original is GET …/diff/original.
func (h *Diffs) original(w http.ResponseWriter, r *http.Request) error {
	body, f, err := h.Service.Original(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"), r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	defer body.Close()
	if err := sendOriginal(w, body, f.Size); err != nil {
		edge.LogBroken(r.Context(), err)
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	return nil
}

// sendOriginal sends a file within originalTime.
func sendOriginal(w http.ResponseWriter, body io.Reader, size int64) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(originalTime)) // a transport without deadlines, as in tests
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, err := io.Copy(w, body)
	return err
}

const diffDescription = "The writes of a running or paused sandbox since it was made from its image or snapshot: a directory before what is in it, else sorted by name. " +
	"A file that was written anew counts as changed also when it has the same content; a directory counts as changed when its mode or owner is another. " +
	"/tmp, /proc, /sys and /dev are not compared. A running sandbox stands still while what it has written is read through, for about a second per gigabyte, once for each page; " +
	"after 30 seconds the request is refused with code timeout. A workspace has at most two of these requests at a time."
