package files

import (
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
)

// registerWatch adds the route of watches.
func (h *Files) registerWatch(m *route.Mux) {
	m.Raw(huma.Operation{
		OperationID: "watch-files", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files/watch", Tags: []string{"files"},
		Summary:     "Watch a directory or file",
		Description: watchDescription,
		Parameters:  []*huma.Param{route.SandboxParam(), pathParam(), route.Query("recursive", "Watch all directories below too: true or false.", false)},
		Responses:   map[string]*huma.Response{"200": {Description: "The events", Content: route.LinesContent[wire.FileEvent](m)}},
	}, h.watchFiles)
}

const watchDescription = "Answers one JSON object a line for each change, first `ready`: it reports all later changes. " +
	"Files in a new directory from before its watch are `created`. A rename is `moved_from` and `moved_to`. Repetitions may be merged. " +
	"`overflow` says that events were lost, `limit` that the directory at its path is not watched, and maybe others, because there are too many. " +
	"After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. " +
	"It ends with `ended` when the directory is gone, or with `error`."

// watchFiles is GET …/files/watch: one event a line as things happen, and a ping
// after each silence. It ends with ended, or with error when it broke off.
func (h *Files) watchFiles(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	recursive, err := route.ParseBool("recursive", q.Get("recursive"))
	if err != nil {
		return err
	}
	watch, err := h.Guest.Watch(r.Context(), route.Caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), recursive)
	if err != nil {
		return err
	}
	defer watch.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := edge.Talk(w, h.Ping)
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
