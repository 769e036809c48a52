package snapshots

import (
	"context"
	"io/fs"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Files are the routes of the files in snapshots.
type Files struct{ Service *snapshot.Service }

type snapshotFilesInput struct {
	SnapshotRef
	Path      string `query:"path" maxLength:"1024" doc:"The directory, or a file alone; the root when omitted. Symlinks on the way are not followed."`
	Recursive bool   `query:"recursive" doc:"All below, not only what is in the directory."`
	SHA256    bool   `query:"sha256" doc:"With the hash of what each file holds. A page then ends early when reading takes too much."`
	route.PageInput
}

type snapshotDownloadInput struct {
	SnapshotRef
	Path string `query:"path" maxLength:"1024" doc:"The directory or file; the root when omitted."`
}

// Register adds the routes.
func (h *Files) Register(m *route.Mux) {
	const snapshot = "/v1/snapshots/{snapshot}"
	tags := []string{"snapshots"}
	route.JSON(m, huma.Operation{
		OperationID: "list-snapshot-files", Method: http.MethodGet, Path: snapshot + "/files", Tags: tags,
		Summary: "List files of a snapshot", Description: "Those of the whole root filesystem, its image's included: a directory before what is in it, else sorted by name.",
	}, h.snapshotFiles)
	route.JSON(m, huma.Operation{
		OperationID: "share-snapshot-archive", Method: http.MethodPost, Path: snapshot + "/download", Tags: tags,
		Summary:     "Get an address to download files of a snapshot",
		Description: "A tar.gz as of download-snapshot-archive. The address is a secret that replaces a token, for an hour.",
	}, h.shareSnapshot)
	raw := func(op huma.Operation, f edge.Handler) {
		op.Tags = tags
		op.Responses = map[string]*huma.Response{"200": {Description: "The archive", Content: map[string]*huma.MediaType{
			content.Types[agentapi.FormatTarGzip]: {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}}
		m.Raw(op, f)
	}
	format := route.Query("format", "How it is packed; tar.gz when omitted.", false)
	format.Schema.Enum = []any{"tar.gz", "tar"}
	raw(huma.Operation{
		OperationID: "download-snapshot-archive", Method: http.MethodGet, Path: snapshot + "/archive",
		Summary:     "Download files of a snapshot",
		Description: "Names are relative to the directory; the archive of a file has a single entry. It contains owners, modes, symlinks and hard links, but no devices, pipes and sockets. It is packed while it is sent: the connection breaks off when that fails.",
		Parameters: []*huma.Param{
			{Name: "snapshot", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The snapshot, percent-encoded: its id, name, name:tag or @workspace/name:tag."},
			route.Query("path", "The directory or file; the root when omitted.", false), format,
		},
	}, h.snapshotArchive)
	raw(huma.Operation{
		OperationID: "download-shared-archive", Method: http.MethodGet, Path: "/v1/downloads/{key}",
		Summary:     "Download what an address is for",
		Description: "Without a token: the key is the secret.",
		Parameters:  []*huma.Param{{Name: "key", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The last part of the address."}},
	}, h.download)
}

func (h *Files) snapshotFiles(ctx context.Context, in *snapshotFilesInput) (*route.Body[wire.Page[wire.SnapshotFile]], error) {
	var after []byte // a path need not be UTF-8
	if _, err := page.Parse(in.Cursor, pathOrder, &after); err != nil {
		return nil, err
	}
	part, err := h.Service.Files(ctx, route.Caller(ctx), in.Snapshot, sandbox.SnapshotFileQuery{
		Path: in.Path, Recursive: in.Recursive, Hash: in.SHA256, Limit: in.Limit, After: string(after),
	})
	p := page.Page[sandbox.SnapshotFile]{Items: part.Files}
	if part.More {
		p.Next = page.Cursor(pathOrder, []byte(part.Files[len(part.Files)-1].Path))
	}
	return route.Paged(p, err, shownFile)
}

// pathOrder is the order of lists of files.
const pathOrder = "path"

// typeOf is the type of a file in a snapshot.
func typeOf(mode fs.FileMode) agentapi.FileType {
	switch {
	case mode.IsRegular():
		return agentapi.TypeFile
	case mode.IsDir():
		return agentapi.TypeDir
	case mode&fs.ModeSymlink != 0:
		return agentapi.TypeSymlink
	}
	return agentapi.TypeOther
}

func (h *Files) shareSnapshot(ctx context.Context, in *snapshotDownloadInput) (*route.Body[wire.SnapshotDownload], error) {
	key, until, err := h.Service.DownloadKey(ctx, route.Caller(ctx), in.Snapshot, in.Path)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.SnapshotDownload{URL: "/v1/downloads/" + key, ExpiresAt: until}), nil
}

// snapshotArchive is GET /v1/snapshots/{snapshot}/archive.
func (h *Files) snapshotArchive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	body, err := h.Service.Archive(r.Context(), route.Caller(r.Context()), r.PathValue("snapshot"), q.Get("path"), q.Get("format"))
	if err != nil {
		return err
	}
	format := agentapi.Format(q.Get("format"))
	if format == "" {
		format = agentapi.FormatTarGzip
	}
	return content.SendArchive(w, r, body, "snapshot", format)
}

// download is GET /v1/downloads/{key}. It needs no token: the key is the secret.
func (h *Files) download(w http.ResponseWriter, r *http.Request) error {
	body, sn, err := h.Service.OpenDownload(r.Context(), r.PathValue("key"))
	if err != nil {
		return err
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "private, no-store")
	return content.SendArchive(w, r, body, sn.Name, agentapi.FormatTarGzip)
}
