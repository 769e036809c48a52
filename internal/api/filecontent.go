package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/sandbox"
)

// readFile is GET …/files: the content, also in ranges.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Query().Get("path")
	if err := checkPath("path", path); err != nil {
		return err
	}
	c, ref := caller(r.Context()), r.PathValue("sandbox")
	return content.Serve(w, r, func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
		body, info, err := s.guest.ReadFile(r.Context(), c, ref, path, offset, length)
		if err == nil {
			w.Header().Set("Content-Disposition", "attachment")
		}
		return body, info, err
	})
}

// writeFile is PUT …/files: the body becomes the file, of any size, atomically.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkPath("path", q.Get("path")); err != nil {
		return err
	}
	mode, err := parseMode(q.Get("mode"))
	if err != nil {
		return err
	}
	parents, err := parseBool("parents", q.Get("parents"))
	if err != nil {
		return err
	}
	opts := agentapi.WriteOptions{Mode: mode, User: q.Get("user"), Parents: parents}
	info, err := s.guest.WriteFile(r.Context(), caller(r.Context()), r.PathValue("sandbox"), q.Get("path"), r.Body, opts)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(fileInfo(info))
}

func parseBool(field, s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, sandbox.InvalidField(field, "must be true or false")
	}
	return b, nil
}
