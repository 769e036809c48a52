package files

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/guest"
)

type writeFilesInput struct {
	route.SandboxRef
	Body wire.WriteFiles
}

// registerBatch adds the route that writes many files.
func (h *Files) registerBatch(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "write-files", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/files/batch", Tags: []string{"files"},
		MaxBodyBytes: route.FilesBodyMax,
		Summary:      "Write many files",
		Description:  "One after the other, each all or nothing, with the parent directories it misses. At most 1000 files with 32 MiB together; archives take more. An error names the file it is about: those before it are written.",
	}, h.writeFiles)
}

func (h *Files) writeFiles(ctx context.Context, in *writeFilesInput) (*route.Body[wire.WrittenFiles], error) {
	files := make([]guest.FileContent, len(in.Body.Files))
	for i, f := range in.Body.Files {
		if err := checkPath("path", f.Path); err != nil {
			return nil, err
		}
		mode, err := route.ParseMode(f.Mode)
		if err != nil {
			return nil, err
		}
		files[i] = guest.FileContent{Path: f.Path, Mode: mode, Content: f.Content}
	}
	n, err := h.Guest.WriteFiles(ctx, route.Caller(ctx), in.Ref, files)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.WrittenFiles{Count: n}), nil
}
