package api

import (
	"context"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/guest"
)

type writeFilesInput struct {
	SandboxRef
	Body wire.WriteFiles
}

func (s *Server) registerWriteFiles(a huma.API) {
	route(a, huma.Operation{
		OperationID: "write-files", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/batch", Tags: []string{"files"},
		MaxBodyBytes: filesBodyMax,
		Summary:      "Write many files",
		Description:  "One after the other, each all or nothing, with the parent directories it misses. At most 1000 files with 32 MiB together; archives take more. An error names the file it is about: those before it are written.",
	}, s.writeFiles)
}

func (s *Server) writeFiles(ctx context.Context, in *writeFilesInput) (*body[wire.WrittenFiles], error) {
	files := make([]guest.FileContent, len(in.Body.Files))
	for i, f := range in.Body.Files {
		if err := checkPath("path", f.Path); err != nil {
			return nil, err
		}
		mode, err := parseMode(f.Mode)
		if err != nil {
			return nil, err
		}
		files[i] = guest.FileContent{Path: f.Path, Mode: mode, Content: f.Content}
	}
	n, err := s.guest.WriteFiles(ctx, caller(ctx), in.Ref, files)
	if err != nil {
		return nil, err
	}
	return reply(wire.WrittenFiles{Count: n}), nil
}

// archiveTypes are the media types of the formats.
var archiveTypes = map[agentapi.Format]string{
	agentapi.FormatTarGzip: "application/gzip",
	agentapi.FormatZip:     "application/zip",
	agentapi.FormatTar:     "application/x-tar",
}

// downloadArchive is GET …/files/archive: a directory or file, packed as it is sent.
func (s *Server) downloadArchive(w http.ResponseWriter, r *http.Request) error {
	name, format := r.URL.Query().Get("path"), r.URL.Query().Get("format")
	if err := checkPath("path", name); err != nil {
		return err
	}
	body, err := s.guest.DownloadArchive(r.Context(), caller(r.Context()), r.PathValue("sandbox"), name, format)
	if err != nil {
		return err
	}
	if format == "" {
		format = string(agentapi.FormatTarGzip)
	}
	file := path.Base(name)
	if file == "/" || file == "." || file == ".." {
		file = "files"
	}
	return sendArchive(w, r, body, file, agentapi.Format(format))
}

// sendArchive sends an archive as it is packed, and closes it.
func sendArchive(w http.ResponseWriter, r *http.Request, body io.ReadCloser, name string, format agentapi.Format) error {
	defer body.Close()
	w.Header().Set("Content-Type", archiveTypes[format])
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + "." + string(format)}))
	w.WriteHeader(http.StatusOK)
	if err := copyFlushing(w, body); err != nil {
		edge.Log(r.Context(), err)
		panic(http.ErrAbortHandler) // so that a part is not taken for the whole
	}
	return nil
}

// uploadArchive is PUT …/files/archive: the body is unpacked as it comes.
func (s *Server) uploadArchive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	keepLinks, err := parseBool("keep_links", q.Get("keep_links"))
	if err != nil {
		return err
	}
	opts := agentapi.ArchiveOptions{Format: agentapi.Format(q.Get("format")), KeepLinks: keepLinks}
	if err := s.guest.UnpackArchive(r.Context(), caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), r.Body, opts); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// watchFiles is GET …/files/watch: one event a line as things happen, and a ping
// after each silence. It ends with ended, or with error when it broke off.
func (s *Server) watchFiles(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	recursive, err := parseBool("recursive", q.Get("recursive"))
	if err != nil {
		return err
	}
	watch, err := s.guest.Watch(r.Context(), caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), recursive)
	if err != nil {
		return err
	}
	defer watch.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := edge.Talk(w, s.cfg.Ping)
	defer out.Stop()
	for {
		e, err := watch.Next()
		m := wire.FileEvent{Type: string(e.Type), Path: e.Path, Directory: e.Dir}
		switch {
		case err == io.EOF:
			m.Type = wire.WatchEnded
		case err != nil:
			p := edge.Problem(r.Context(), err)
			m = wire.FileEvent{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail}
		}
		if out.Send(m) != nil || err != nil {
			return nil
		}
	}
}

// describeArchives adds the routes of archives and watches.
func (s *Server) describeArchives(a huma.API, raw func(huma.Operation, edge.Handler), at *huma.Param) {
	types := map[string]*huma.MediaType{}
	for _, t := range archiveTypes {
		types[t] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
	}
	format := func(without string) *huma.Param {
		p := query("format", "How it is packed; "+without, false)
		p.Schema.Enum = []any{"tar.gz", "zip", "tar"}
		return p
	}
	const path = "/v1/sandboxes/{sandbox}/files/"
	raw(huma.Operation{
		OperationID: "download-archive", Method: http.MethodGet, Path: path + "archive", Tags: []string{"files"},
		Summary:     "Download a directory as an archive",
		Description: "Names are relative to the directory; the archive of a file has a single entry. It contains symlinks, but no devices, pipes, sockets, owners and other filesystems. It is packed while it is sent: the connection breaks off when that fails.",
		Parameters:  []*huma.Param{at, format("tar.gz when omitted.")},
		Responses:   map[string]*huma.Response{"200": {Description: "The archive", Content: types}},
	}, s.downloadArchive)
	raw(huma.Operation{
		OperationID: "upload-archive", Method: http.MethodPut, Path: path + "archive", Tags: []string{"files"},
		Summary:     "Unpack an archive",
		Description: "Below the directory at path, which is made when it is missing; files are replaced, directories merged. All belongs to the image's user and keeps its permission bits. Nothing outside is touched: absolute paths, `..`, links that lead out, devices, and what is far larger than its archive are refused with code invalid. Of a tar what came before stays.",
		Parameters: []*huma.Param{at, format("found out from its first bytes when omitted."),
			query("keep_links", "Keep symlinks that lead out of the directory instead of refusing the archive: true or false.", false)},
		RequestBody: &huma.RequestBody{Required: true, Content: types},
		Responses:   map[string]*huma.Response{"204": {Description: "It is unpacked"}},
	}, s.uploadArchive)
	raw(huma.Operation{
		OperationID: "watch-files", Method: http.MethodGet, Path: path + "watch", Tags: []string{"files"},
		Summary:     "Watch a directory or file",
		Description: watchDescription,
		Parameters:  []*huma.Param{at, query("recursive", "Watch all directories below too: true or false.", false)},
		Responses: map[string]*huma.Response{"200": {Description: "The events", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.FileEvent](a)},
		}}},
	}, s.watchFiles)
}

const watchDescription = "Answers one JSON object a line for each change, first `ready`: it reports all later changes. " +
	"Files in a new directory from before its watch are `created`. A rename is `moved_from` and `moved_to`. Repetitions may be merged. " +
	"`overflow` says that events were lost, `limit` that the directory at its path is not watched, and maybe others, because there are too many. " +
	"After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. " +
	"It ends with `ended` when the directory is gone, or with `error`."
