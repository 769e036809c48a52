package agentuity

import (
	"io"
	"net/http"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
)

// createStream makes the stream from which a one-shot sandbox reads its input.
func (d *Dialect) createStream(w http.ResponseWriter, r *http.Request) error {
	id, err := d.executions.CreateStream(r.Context(), caller(r.Context()))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		ID string `json:"id"`
	}{string(id)})
	return nil
}

// writeStream writes an input as it arrives and ends it with the body.
func (d *Dialect) writeStream(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("stream")
	access.FromContext(r.Context()).LetBodyRest(edge.InputIdleTime)
	if err := d.executions.WriteStdin(r.Context(), id, r.Body); err != nil {
		return err
	}
	if err := d.executions.CloseStdin(r.Context(), id); err != nil {
		return err
	}
	return answerDone(w)
}

// readStream answers with the content of a stream until its end. Every part is sent as soon as it
// exists.
func (d *Dialect) readStream(w http.ResponseWriter, r *http.Request) error {
	open := d.executions.OpenStream
	if r.URL.Query().Get("timestamps") == "true" {
		open = d.executions.OpenStreamTimes
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
