package agentuity

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// files has the handlers for files.
type files struct {
	*finder
	guest *guest.Calls
}

func (h *files) register(m routes) {
	m.add("POST /fs/{id}", byCode, h.write)
	m.add("POST /fs/mkdir/{id}", byCode, h.mkdir)
	m.add("POST /fs/rmdir/{id}", byCode, h.rmdir)
	m.add("POST /fs/rm/{id}", byCode, h.rm)
	m.add("GET /fs/list/{id}", byCode, h.list)
	m.add("GET /fs/{id}", byStatus, h.read)
	m.add("GET /fs/download/{id}", byStatus, h.download)
	m.add("POST /fs/upload/{id}", byStatus, h.upload)
}

// smallFile is the size up to which a file is written from memory, so that the write is repeated when
// the sandbox is saved meanwhile.
const smallFile = 64 << 10

// write writes each file while the body arrives.
func (h *files) write(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	ctx, kept := r.Context(), 0
	body := &fileStream{r: bufio.NewReaderSize(r.Body, 32<<10)}
	body.keep = func(content io.Reader) ([]byte, error) {
		b, err := io.ReadAll(edge.Whole(ctx, io.LimitReader(content, int64(sandbox.ExecutionFilesMax-kept+1))))
		if kept += len(b); err == nil && kept > sandbox.ExecutionFilesMax {
			err = sandbox.Errorf(sandbox.TooLarge, "files whose content comes before their path have more than %d bytes together; send the path first", sandbox.ExecutionFilesMax)
		}
		return b, err
	}
	body.write = func(path string, content io.Reader) error {
		start, err := io.ReadAll(io.LimitReader(content, smallFile+1))
		if err != nil {
			return err
		}
		if len(start) <= smallFile {
			_, err = h.guest.WriteFiles(ctx, caller(ctx), string(sb.ID), []guest.FileContent{{Path: path, Content: start}})
			return err
		}
		_, err = h.guest.WriteFile(ctx, caller(ctx), string(sb.ID), path, io.MultiReader(bytes.NewReader(start), content), agentapi.WriteOptions{Parents: true, Size: -1})
		return err
	}
	n, err := body.run()
	if err != nil {
		return known(err)
	}
	return answer(w, struct {
		FilesWritten int `json:"filesWritten"`
	}{n})
}

func (h *files) read(w http.ResponseWriter, r *http.Request) error {
	name, err := pathOf(r)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	return known(content.Serve(w, r, func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
		return h.guest.ReadFile(r.Context(), caller(r.Context()), string(sb.ID), name, offset, length)
	}))
}

// pathOf returns the path in the query, which is required.
func pathOf(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if !isPath(p) {
		return "", sandbox.InvalidField("path", "must be set, without NUL characters")
	}
	return absolute(p), nil
}

// pathInput is the body of the calls that change the file tree.
type pathInput struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

// place reads the body and finds the sandbox of a call that changes the file tree.
func (h *files) place(w http.ResponseWriter, r *http.Request) (in pathInput, sb sandbox.Sandbox, err error) {
	if in, err = decode[pathInput](w, r); err != nil {
		return in, sb, err
	}
	if !isPath(in.Path) {
		return in, sb, sandbox.InvalidField("path", "must be set, without NUL characters")
	}
	in.Path = absolute(in.Path)
	sb, err = h.usable(r)
	return in, sb, err
}

func (h *files) mkdir(w http.ResponseWriter, r *http.Request) error {
	in, sb, err := h.place(w, r)
	if err != nil {
		return err
	}
	ctx, req := r.Context(), agentapi.MkdirRequest{Path: in.Path, Parents: in.Recursive}
	err = h.guest.Mkdir(ctx, caller(ctx), string(sb.ID), req)
	if sandbox.CodeOf(err) == sandbox.FileNotFound && !in.Recursive {
		// The first use creates the workspace directory itself.
		if err := h.guest.Mkdir(ctx, caller(ctx), string(sb.ID), agentapi.MkdirRequest{Path: workspaceDir, Parents: true}); err != nil {
			return known(err)
		}
		err = h.guest.Mkdir(ctx, caller(ctx), string(sb.ID), req)
	}
	if err != nil {
		return known(err)
	}
	return answerDone(w)
}

func (h *files) rm(w http.ResponseWriter, r *http.Request) error { return h.remove(w, r, false) }

func (h *files) rmdir(w http.ResponseWriter, r *http.Request) error { return h.remove(w, r, true) }

// remove removes a file or, with dir, a directory. A missing file is not an error.
func (h *files) remove(w http.ResponseWriter, r *http.Request, dir bool) error {
	in, sb, err := h.place(w, r)
	if err != nil {
		return err
	}
	out := struct {
		Success bool `json:"success"`
		Found   bool `json:"found"`
	}{true, true}
	ctx := r.Context()
	is, err := h.guest.Stat(ctx, caller(ctx), string(sb.ID), in.Path)
	switch {
	case err != nil:
	case dir != (is.Type == agentapi.TypeDir) && dir:
		return sandbox.Errorf(sandbox.Conflict, "%s is not a directory", in.Path)
	case dir != (is.Type == agentapi.TypeDir):
		return sandbox.Errorf(sandbox.Conflict, "%s is a directory", in.Path)
	default:
		err = h.guest.Remove(ctx, caller(ctx), string(sb.ID), in.Path, dir && in.Recursive)
	}
	if sandbox.CodeOf(err) == sandbox.FileNotFound {
		out.Found, err = false, nil
	}
	if err != nil {
		return known(err)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

type fileInfo struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	IsDir      bool   `json:"isDir"`
	IsSymlink  bool   `json:"isSymlink,omitempty"`
	LinkTarget string `json:"linkTarget,omitempty"`
	Mode       string `json:"mode"`
	ModTime    string `json:"modTime"`
}

func (h *files) list(w http.ResponseWriter, r *http.Request) error {
	dir := absolute(r.URL.Query().Get("path"))
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	out := struct {
		Files []fileInfo `json:"files"`
	}{[]fileInfo{}}
	for f, err := range h.guest.Entries(r.Context(), caller(r.Context()), string(sb.ID), dir) {
		if sandbox.CodeOf(err) == sandbox.FileNotFound && dir == workspaceDir {
			break // the first use will create it
		}
		if err == nil && len(out.Files) >= agentapi.MaxListEntries {
			err = sandbox.Errorf(sandbox.TooLarge, "%s has more than %d entries", sandbox.Excerpt(dir), agentapi.MaxListEntries)
		}
		if err != nil {
			return known(err)
		}
		out.Files = append(out.Files, fileInfo{
			Path: f.Name, Size: f.Size, IsDir: f.Type == agentapi.TypeDir, IsSymlink: f.Target != "", LinkTarget: f.Target,
			Mode: fmt.Sprintf("%04o", f.Mode), ModTime: f.ModTime.UTC().Format(time.RFC3339),
		})
	}
	return answer(w, out)
}

// download returns an archive of a directory, by default of the workspace.
func (h *files) download(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	body, err := h.guest.DownloadArchive(r.Context(), caller(r.Context()), string(sb.ID), absolute(q.Get("path")), q.Get("format"))
	if err != nil {
		return known(err)
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // so that the client does not mistake a part for the whole
	}
	return nil
}

func (h *files) upload(w http.ResponseWriter, r *http.Request) error {
	q, dir := r.URL.Query(), absolute(r.URL.Query().Get("path"))
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	if err := h.unpack(r.Context(), caller(r.Context()), sb.ID, dir, q.Get("format"), r.Body); err != nil {
		return known(err)
	}
	return answerDone(w)
}

// unpack unpacks an archive into a directory, which it creates if it is missing.
func (h *files) unpack(ctx context.Context, c sandbox.Caller, id sandbox.ID, dir, format string, archive io.Reader) error {
	if err := h.guest.Mkdir(ctx, c, string(id), agentapi.MkdirRequest{Path: dir, Parents: true}); err != nil {
		return err
	}
	return h.guest.UploadArchive(ctx, c, string(id), dir, format, archive)
}
