package api

import (
	"context"
	"io/fs"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

type snapshotFilesInput struct {
	SnapshotRef
	Path      string `query:"path" maxLength:"1024" doc:"The directory, or a file alone; the root when omitted. Symlinks on the way are not followed."`
	Recursive bool   `query:"recursive" doc:"All below, not only what is in the directory."`
	SHA256    bool   `query:"sha256" doc:"With the hash of what each file holds. A page then ends early when reading takes too much."`
	PageInput
}

type snapshotDownloadInput struct {
	SnapshotRef
	Path string `query:"path" maxLength:"1024" doc:"The directory or file; the root when omitted."`
}

func (s *Server) registerSnapshotFiles(a huma.API, mux router) {
	const snapshot = "/v1/snapshots/{snapshot}"
	tags := []string{"snapshots"}
	route(a, huma.Operation{
		OperationID: "list-snapshot-files", Method: http.MethodGet, Path: snapshot + "/files", Tags: tags,
		Summary: "List files of a snapshot", Description: "Those of the whole root filesystem, its image's included: a directory before what is in it, else sorted by name.",
	}, s.snapshotFiles)
	route(a, huma.Operation{
		OperationID: "share-snapshot-archive", Method: http.MethodPost, Path: snapshot + "/download", Tags: tags,
		Summary:     "Get an address to download files of a snapshot",
		Description: "A tar.gz as of download-snapshot-archive. The address is a secret that replaces a token, for an hour.",
	}, s.shareSnapshot)
	raw := func(op huma.Operation, h edge.Handler) {
		op.Tags = tags
		op.Responses = map[string]*huma.Response{"200": {Description: "The archive", Content: map[string]*huma.MediaType{
			archiveTypes[agentapi.FormatTarGzip]: {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}}
		describe(a, &op)
		mux.HandleFunc(op.Method+" "+op.Path, h.ServeHTTP)
		a.OpenAPI().AddOperation(&op)
	}
	format := query("format", "How it is packed; tar.gz when omitted.", false)
	format.Schema.Enum = []any{"tar.gz", "tar"}
	raw(huma.Operation{
		OperationID: "download-snapshot-archive", Method: http.MethodGet, Path: snapshot + "/archive",
		Summary:     "Download files of a snapshot",
		Description: "Names are relative to the directory; the archive of a file has a single entry. It contains owners, modes, symlinks and hard links, but no devices, pipes and sockets. It is packed while it is sent: the connection breaks off when that fails.",
		Parameters: []*huma.Param{
			{Name: "snapshot", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The snapshot, percent-encoded: its id, name, name:tag or @workspace/name:tag."},
			query("path", "The directory or file; the root when omitted.", false), format,
		},
	}, s.snapshotArchive)
	raw(huma.Operation{
		OperationID: "download-shared-archive", Method: http.MethodGet, Path: "/v1/downloads/{key}",
		Summary:     "Download what an address is for",
		Description: "Without a token: the key is the secret.",
		Parameters:  []*huma.Param{{Name: "key", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The last part of the address."}},
	}, s.download)
}

func (s *Server) snapshotFiles(ctx context.Context, in *snapshotFilesInput) (*body[wire.Page[wire.SnapshotFile]], error) {
	var after []byte // a path need not be UTF-8
	if _, err := page.Parse(in.Cursor, pathOrder, &after); err != nil {
		return nil, err
	}
	part, err := s.svc.Snapshots().Files(ctx, caller(ctx), in.Snapshot, sandbox.SnapshotFileQuery{
		Path: in.Path, Recursive: in.Recursive, Hash: in.SHA256, Limit: in.Limit, After: string(after),
	})
	p := page.Page[sandbox.SnapshotFile]{Items: part.Files}
	if part.More {
		p.Next = page.Cursor(pathOrder, []byte(part.Files[len(part.Files)-1].Path))
	}
	return paged(p, err, func(f sandbox.SnapshotFile) wire.SnapshotFile {
		return wire.SnapshotFile{
			Path: f.Path, Type: string(typeOf(f.Mode)), SizeBytes: f.Size, Mode: octal(sandbox.ModeBits(f.Mode)), UID: f.UID, GID: f.GID,
			ModTime: f.ModTime, Target: f.Target, SHA256: f.SHA256,
		}
	})
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

func (s *Server) shareSnapshot(ctx context.Context, in *snapshotDownloadInput) (*body[wire.SnapshotDownload], error) {
	key, until, err := s.svc.Snapshots().DownloadKey(ctx, caller(ctx), in.Snapshot, in.Path)
	if err != nil {
		return nil, err
	}
	return reply(wire.SnapshotDownload{URL: "/v1/downloads/" + key, ExpiresAt: until}), nil
}

// snapshotArchive is GET /v1/snapshots/{snapshot}/archive.
func (s *Server) snapshotArchive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	body, err := s.svc.Snapshots().Archive(r.Context(), caller(r.Context()), r.PathValue("snapshot"), q.Get("path"), q.Get("format"))
	if err != nil {
		return err
	}
	format := agentapi.Format(q.Get("format"))
	if format == "" {
		format = agentapi.FormatTarGzip
	}
	return sendArchive(w, r, body, "snapshot", format)
}

// download is GET /v1/downloads/{key}. It needs no token: the key is the secret.
func (s *Server) download(w http.ResponseWriter, r *http.Request) error {
	body, sn, err := s.svc.Snapshots().OpenDownload(r.Context(), r.PathValue("key"))
	if err != nil {
		return err
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "private, no-store")
	return sendArchive(w, r, body, sn.Name, agentapi.FormatTarGzip)
}
