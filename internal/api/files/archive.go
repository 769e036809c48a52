package files

import (
	"net/http"
	"path"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/guest"
)

// Archives are the routes of directories of a sandbox as archives.
type Archives struct{ Guest *guest.Calls }

// Register adds the routes.
func (h *Archives) Register(m *route.Mux) {
	types := map[string]*huma.MediaType{}
	for _, t := range content.Types {
		types[t] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
	}
	format := func(without string) *huma.Param {
		p := route.Query("format", "How it is packed; "+without, false)
		p.Schema.Enum = []any{"tar.gz", "zip", "tar"}
		return p
	}
	at := pathParam()
	const path = "/v1/sandboxes/{sandbox}/files/"
	m.Raw(huma.Operation{
		OperationID: "download-archive", Method: http.MethodGet, Path: path + "archive", Tags: []string{"files"},
		Summary:     "Download a directory as an archive",
		Description: "Names are relative to the directory; the archive of a file has a single entry. It contains symlinks, but no devices, pipes, sockets, owners and other filesystems. It is packed while it is sent: the connection breaks off when that fails.",
		Parameters:  []*huma.Param{route.SandboxParam(), at, format("tar.gz when omitted.")},
		Responses:   map[string]*huma.Response{"200": {Description: "The archive", Content: types}},
	}, h.downloadArchive)
	m.Raw(huma.Operation{
		OperationID: "upload-archive", Method: http.MethodPut, Path: path + "archive", Tags: []string{"files"},
		Summary:     "Unpack an archive",
		Description: "Below the directory at path, which is made when it is missing; files are replaced, directories merged. All belongs to the image's user and keeps its permission bits. Nothing outside is touched: absolute paths, `..`, links that lead out, devices, and what is far larger than its archive are refused with code invalid. Of a tar what came before stays.",
		Parameters: []*huma.Param{route.SandboxParam(), at, format("found out from its first bytes when omitted."),
			route.Query("keep_links", "Keep symlinks that lead out of the directory instead of refusing the archive: true or false.", false)},
		RequestBody: &huma.RequestBody{Required: true, Content: types},
		Responses:   map[string]*huma.Response{"204": {Description: "It is unpacked"}},
	}, h.uploadArchive)
}

// downloadArchive is GET …/files/archive: a directory or file, packed as it is sent.
func (h *Archives) downloadArchive(w http.ResponseWriter, r *http.Request) error {
	name, format := r.URL.Query().Get("path"), r.URL.Query().Get("format")
	if err := checkPath("path", name); err != nil {
		return err
	}
	body, err := h.Guest.DownloadArchive(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"), name, format)
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
	return content.SendArchive(w, r, body, file, agentapi.Format(format))
}

// uploadArchive is PUT …/files/archive: the body is unpacked as it comes.
func (h *Archives) uploadArchive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	keepLinks, err := route.ParseBool("keep_links", q.Get("keep_links"))
	if err != nil {
		return err
	}
	opts := agentapi.ArchiveOptions{Format: agentapi.Format(q.Get("format")), KeepLinks: keepLinks}
	if err := h.Guest.UnpackArchive(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), r.Body, opts); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
