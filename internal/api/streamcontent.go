package api

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// Headers of a stream's answer.
const (
	streamEnded     = "Modbox-Stream-Ended"     // true when nothing will be added
	streamTruncated = "Modbox-Stream-Truncated" // true when bytes were dropped
)

// readStream is GET /v1/streams/{stream}. It needs no token: the id is the secret.
func (s *Server) readStream(w http.ResponseWriter, r *http.Request) error {
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
	open := s.executions.OpenStream
	if times {
		open = s.executions.OpenStreamTimes
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
	if copyFlushing(w, body) != nil {
		panic(http.ErrAbortHandler) // so that a part is not taken for the whole
	}
	return nil
}

// copyFlushing sends what body has as soon as it comes, to a client that takes it.
func copyFlushing(w http.ResponseWriter, body io.Reader) error {
	c := http.NewResponseController(w)
	if err := c.Flush(); err != nil {
		return err
	}
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a transport without deadlines, as in tests
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := c.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// writeStream is PUT /v1/streams/{stream}: the body is added to an input stream as it
// comes, and ends it unless eof=false. It needs no token: the id is the secret.
func (s *Server) writeStream(w http.ResponseWriter, r *http.Request) error {
	id, end := r.PathValue("stream"), true
	if v := r.URL.Query().Get("eof"); v != "" {
		var err error
		if end, err = boolean("eof", v); err != nil {
			return err
		}
	}
	access.FromContext(r.Context()).LetBodyRest(edge.InputIdleTime)
	if err := s.executions.WriteStdin(r.Context(), id, r.Body); err != nil {
		return err
	}
	if end {
		if err := s.executions.CloseStdin(r.Context(), id); err != nil {
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
