package executions

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// Headers of a stream's answer.
const (
	streamEnded     = "Modbox-Stream-Ended"     // true when nothing will be added
	streamTruncated = "Modbox-Stream-Truncated" // true when bytes were dropped
)

// Streams are the routes of input and output streams.
type Streams struct{ Service *execution.Service }

// Register adds the routes. It only describes [Streams.Read] and [Streams.Write], which need no
// token and are served beside the others.
func (h *Streams) Register(m *route.Mux) {
	tags := []string{"executions"}
	route.JSON(m, huma.Operation{
		OperationID: "create-stream", Method: http.MethodPost, Path: "/v1/streams", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make an input stream", Description: "For the standard input of a command that is to come. It can be written to at once.",
	}, h.create)
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	id := &huma.Param{Name: "stream", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The stream. Its id is a secret: it replaces a token."}
	m.Public(huma.Operation{
		OperationID: "read-stream", Method: http.MethodGet, Path: "/v1/streams/{stream}", Tags: tags,
		Summary:     "Read a stream",
		Description: "The bytes it holds, while it grows and afterwards. The header Range is honoured when nothing else is asked for. The headers Modbox-Stream-Ended and Modbox-Stream-Truncated say how it is.",
		Parameters: []*huma.Param{
			id,
			route.Query("offset", "The byte to begin at; 0 when omitted.", false),
			route.Query("follow", "Wait at the end for more until the stream ends: true or false.", false),
			route.Query("timestamps", "Put the time at which it came before every line: true or false.", false),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The bytes", Content: binary}, "206": {Description: "The part asked for", Content: binary}},
	})
	m.Public(huma.Operation{
		OperationID: "write-stream", Method: http.MethodPut, Path: "/v1/streams/{stream}", Tags: tags,
		Summary:     "Write to an input stream",
		Description: "The body is added as it comes, and ends the stream.",
		Parameters:  []*huma.Param{id, route.Query("eof", "Whether the stream ends with the body: true or false; true when omitted.", false)},
		RequestBody: &huma.RequestBody{Required: true, Content: binary},
		Responses:   map[string]*huma.Response{"204": {Description: "It was added"}},
	})
}

func (h *Streams) create(ctx context.Context, _ *struct{}) (*route.Body[wire.Stream], error) {
	id, err := h.Service.CreateStream(ctx, route.Caller(ctx))
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.Stream{ID: string(id)}), nil
}

// Read is GET /v1/streams/{stream}. It needs no token: the id is the secret.
func (h *Streams) Read(w http.ResponseWriter, r *http.Request) error {
	id, query := r.PathValue("stream"), r.URL.Query()
	offset, err := integer(query.Get("offset"))
	if err != nil {
		return sandbox.InvalidField("offset", "must be a number of bytes")
	}
	follow, err := boolean("follow", query.Get("follow"))
	if err != nil {
		return err
	}
	times, err := boolean("timestamps", query.Get("timestamps"))
	if err != nil {
		return err
	}
	open := h.Service.OpenStream
	if times {
		open = h.Service.OpenStreamTimes
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	if r.Header.Get("Range") != "" && !follow && !times && offset == 0 {
		return content.Serve(w, r, func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
			body, info, err := open(r.Context(), id, offset, false)
			return body, agentapi.FileInfo{Size: info.Bytes}, err
		})
	}
	body, info, err := open(r.Context(), id, offset, follow)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(streamEnded, strconv.FormatBool(info.Ended))
	w.Header().Set(streamTruncated, strconv.FormatBool(info.Truncated))
	w.WriteHeader(http.StatusOK)
	if content.CopyFlushing(w, body) != nil {
		panic(http.ErrAbortHandler) // so that a part is not taken for the whole
	}
	return nil
}

// Write is PUT /v1/streams/{stream}: the body is added to an input stream as it
// comes, and ends it unless eof=false. It needs no token: the id is the secret.
func (h *Streams) Write(w http.ResponseWriter, r *http.Request) error {
	id, end := r.PathValue("stream"), true
	if v := r.URL.Query().Get("eof"); v != "" {
		var err error
		if end, err = boolean("eof", v); err != nil {
			return err
		}
	}
	access.FromContext(r.Context()).LetBodyRest(edge.InputIdleTime)
	if err := h.Service.WriteStdin(r.Context(), id, r.Body); err != nil {
		return err
	}
	if end {
		if err := h.Service.CloseStdin(r.Context(), id); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func integer(v string) (int64, error) {
	if v == "" {
		return 0, nil
	}
	return strconv.ParseInt(v, 10, 64)
}

func boolean(field, v string) (bool, error) {
	switch v {
	case "", "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	default:
		return false, sandbox.InvalidField(field, "must be true or false")
	}
}
