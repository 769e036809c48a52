package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// readFile is GET …/files: the content, also in ranges.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Query().Get("path")
	if err := checkPath("path", path); err != nil {
		return err
	}
	f := &remoteFile{ctx: r.Context(), files: s.svc, caller: caller(r.Context()), ref: r.PathValue("ref"), path: path}
	if err := f.open(r.Header.Get("Range") != ""); err != nil {
		return err
	}
	defer f.close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	if f.info.Size == 0 && f.body != nil {
		// Files of /proc and the like have no size and content all the same.
		_, _ = io.Copy(w, f.body)
		return nil
	}
	http.ServeContent(w, r, "", f.info.ModTime, f)
	return nil
}

// remoteFile is a file in a sandbox as http.ServeContent wants it. Reading opens
// it at the place of the last seek, so a whole file takes one call.
type remoteFile struct {
	ctx       context.Context
	files     Files
	caller    lifecycle.Caller
	ref, path string
	info      agentapi.FileInfo

	body io.ReadCloser // nil until read
	at   int64         // where body is
	pos  int64         // where the reader wants to be
}

// open looks the file up; for a whole one it begins to read at once.
func (f *remoteFile) open(ranged bool) (err error) {
	if !ranged {
		f.body, f.info, err = f.files.ReadFile(f.ctx, f.caller, f.ref, f.path, 0, -1)
		return err
	}
	// Stat does not follow a last symlink, reading does: only reading knows the size.
	body, info, err := f.files.ReadFile(f.ctx, f.caller, f.ref, f.path, 0, 0)
	if err != nil {
		return err
	}
	f.info = info
	return body.Close()
}

func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.info.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the file")
	}
	f.pos = offset
	return offset, nil
}

func (f *remoteFile) Read(p []byte) (int, error) {
	if f.body == nil || f.at != f.pos {
		f.close()
		body, _, err := f.files.ReadFile(f.ctx, f.caller, f.ref, f.path, f.pos, -1)
		if err != nil {
			return 0, fmt.Errorf("read %s at %d: %w", f.path, f.pos, err)
		}
		f.body, f.at = body, f.pos
	}
	n, err := f.body.Read(p)
	f.at += int64(n)
	f.pos = f.at
	return n, err
}

func (f *remoteFile) close() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
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
	info, err := s.svc.WriteFile(r.Context(), caller(r.Context()), r.PathValue("ref"), q.Get("path"), r.Body, opts)
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
