package files

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/sandbox"
)

// pathParam describes the query parameter that names a path.
func pathParam() *huma.Param {
	return route.Query("path", "The path; a relative path begins at the working directory of commands, the image's.", true)
}

// registerContent adds the routes of the content of a file.
func (h *Files) registerContent(m *route.Mux) {
	path := pathParam()
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	m.Raw(huma.Operation{
		OperationID: "read-file", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files", Tags: []string{"files"},
		Summary: "Read a file", Description: "Its content. The header Range is honoured.",
		Parameters: []*huma.Param{route.SandboxParam(), path},
		Responses:  map[string]*huma.Response{"200": {Description: "The content", Content: binary}, "206": {Description: "The part asked for", Content: binary}},
	}, h.readFile)
	m.Raw(huma.Operation{
		OperationID: "write-file", Method: http.MethodPut, Path: "/v1/sandboxes/{sandbox}/files", Tags: []string{"files"},
		Summary: "Write a file", Description: "The body becomes the file, whatever its size. Until all of it is there the path is as it was.",
		Parameters: []*huma.Param{
			route.SandboxParam(), path,
			route.Query("mode", "Permission bits in octal; a new file has 0644 without, an existing one keeps its own.", false),
			route.Query("parents", "Make missing parent directories: true or false.", false),
			route.Query("user", "Owner of a new file; the image's user when omitted.", false),
			route.Query("metadata", `The metadata of the file: a JSON object of strings, such as {"source":"https://example.com"}, of at most 64 entries and 4096 bytes. A file that is replaced loses its own.`, false),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: binary},
		Responses:   map[string]*huma.Response{"200": {Description: "The file", Content: route.JSONContent[wire.FileInfo](m)}},
	}, h.writeFile)
}

// readFile is GET …/files: the content, also in ranges.
func (h *Files) readFile(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Query().Get("path")
	if err := checkPath("path", path); err != nil {
		return err
	}
	c, ref := route.Caller(r.Context()), r.PathValue("sandbox")
	return content.Serve(w, r, func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
		body, info, err := h.Guest.ReadFile(r.Context(), c, ref, path, offset, length)
		if err == nil {
			w.Header().Set("Content-Disposition", "attachment")
		}
		return body, info, err
	})
}

// writeFile is PUT …/files: the body becomes the file, of any size, atomically.
func (h *Files) writeFile(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	mode, err := route.ParseMode(q.Get("mode"))
	if err != nil {
		return err
	}
	parents, err := route.ParseBool("parents", q.Get("parents"))
	if err != nil {
		return err
	}
	opts := agentapi.WriteOptions{Mode: mode, User: q.Get("user"), Parents: parents, Size: r.ContentLength}
	if text := q.Get("metadata"); text != "" {
		if opts.Metadata, err = parseMetadata(text); err != nil {
			return err
		}
	}
	info, err := h.Guest.WriteFile(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), r.Body, opts)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(fileInfo(info))
}

// parseMetadata parses the metadata of a file. Errors: Invalid, naming the field.
func parseMetadata(text string) (map[string]string, error) {
	var values map[string]*string
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, sandbox.InvalidField("metadata", "must be a JSON object of strings")
	}
	metadata := make(map[string]string, len(values))
	for key, value := range values {
		if value == nil {
			return nil, sandbox.InvalidField(sandbox.FieldOf("metadata", key), "must be a string, not null")
		}
		metadata[key] = *value
	}
	return metadata, nil
}
