package agentuity

import (
	"io"
	"net/http"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/execution"
)

// streams has the handlers for streams.
type streams struct{ executions *execution.Service }

func (h *streams) register(m routes) {
	m.add("POST /streams", byStatus, h.create)
	m.add("PUT /streams/{stream}", byStatus, h.write)
	// It needs no token: the ID of a stream is the permission to read it.
	m.add("GET /streams/{stream}", byStatus, h.read)
}

// create makes the stream from which a one-shot sandbox reads its input.
func (h *streams) create(w http.ResponseWriter, r *http.Request) error {
	id, err := h.executions.CreateStream(r.Context(), caller(r.Context()))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		ID string `json:"id"`
	}{string(id)})
	return nil
}

// write writes an input as it arrives and ends it with the body.
func (h *streams) write(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("stream")
	access.FromContext(r.Context()).LetBodyRest(edge.InputIdleTime)
	if err := h.executions.WriteStdin(r.Context(), id, r.Body); err != nil {
		return err
	}
	if err := h.executions.CloseStdin(r.Context(), id); err != nil {
		return err
	}
	return answerDone(w)
}

// read answers with the content of a stream until its end. Every part is sent as soon as it
// exists.
func (h *streams) read(w http.ResponseWriter, r *http.Request) error {
	open := h.executions.OpenStream
	if r.URL.Query().Get("timestamps") == "true" {
		open = h.executions.OpenStreamTimes
	}
	body, _, err := open(r.Context(), r.PathValue("stream"), 0, true)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		if err := c.Flush(); err != nil {
			return nil // the client is gone
		}
		n, err := body.Read(buf)
		if _, gone := w.Write(buf[:n]); gone != nil || err == io.EOF {
			return nil
		}
		if err != nil {
			panic(http.ErrAbortHandler) // so that the client does not mistake a part for the whole
		}
	}
}
