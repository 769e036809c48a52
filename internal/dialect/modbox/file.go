package modbox

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/content"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// uploads is the folder of uploaded files; no file call leads out of it.
	uploads = "/workspace/uploads"
	// formOverhead is how many bytes a form may have in addition to its file.
	formOverhead = 1 << 20
	filenameMax  = 255 // bytes, as in Linux
)

func (d *DataPlane) files() guest.Files { return d.guest.Beneath(uploads) }

// fileDetail is a file in the upload folder.
type fileDetail struct {
	Filename   string    `json:"filename"`
	Path       string    `json:"path"`
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modifiedAt"`
}

func detailOf(name string, f agentapi.FileInfo) fileDetail {
	return fileDetail{Filename: name, Path: uploads + "/" + name, Size: f.Size, ModifiedAt: f.ModTime}
}

// checkFilename refuses everything but the plain name of a file.
func checkFilename(name string) error {
	switch {
	case name == "":
		return sandbox.InvalidField("filename", "is missing")
	case len(name) > filenameMax:
		return sandbox.InvalidField("filename", "has %d bytes, the maximum is %d", len(name), filenameMax)
	case name == "." || name == "..", strings.ContainsAny(name, `/\`):
		return sandbox.InvalidField("filename", "must be a plain name, without a directory")
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return sandbox.InvalidField("filename", "must be UTF-8 without control characters")
	}
	return nil
}

// upload stores the form's field "file" as it arrives.
func (d *DataPlane) upload(w http.ResponseWriter, r *http.Request, v *visit) error {
	tooLarge := sandbox.Errorf(sandbox.TooLarge, "the file is larger than %d MB", sandbox.UploadMax>>20)
	if r.ContentLength > sandbox.UploadMax+formOverhead {
		return tooLarge
	}
	r.Body = http.MaxBytesReader(w, r.Body, sandbox.UploadMax+formOverhead)
	form, err := r.MultipartReader()
	if err != nil {
		return sandbox.InvalidField("file", "the body must be multipart/form-data with the field file")
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return &validationError{[]fault{{[]any{"body", "file"}, "Field required", "missing"}}}
		}
		if err != nil {
			return formError(err, tooLarge)
		}
		if part.FormName() != "file" {
			continue
		}
		// part.FileName would silently remove a directory.
		_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name := params["filename"]
		if err := checkFilename(name); err != nil {
			return err
		}
		body := &bounded{r: part, left: sandbox.UploadMax, over: tooLarge}
		info, err := d.files().WriteFile(r.Context(), v.caller, v.ref, name, body, agentapi.WriteOptions{Parents: true, Size: r.ContentLength})
		if err != nil {
			return formError(err, tooLarge)
		}
		return answer(w, struct {
			Success bool `json:"success"`
			fileDetail
		}{true, detailOf(name, info)})
	}
}

// formError gives errors of reading a form a code.
func formError(err, tooLarge error) error {
	var maxBytes *http.MaxBytesError
	var coded *sandbox.Error
	switch {
	case errors.As(err, &maxBytes):
		return tooLarge
	case errors.As(err, &coded):
		return err
	default:
		return sandbox.Wrap(sandbox.Invalid, err, "the form is incomplete")
	}
}

// bounded fails with over when r has more than left bytes.
type bounded struct {
	r    io.Reader
	left int64
	over error
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over
	}
	return n, err
}

// listFiles lists the upload folder, which the first upload creates.
func (d *DataPlane) listFiles(w http.ResponseWriter, r *http.Request, v *visit) error {
	list, err := d.files().ListDir(r.Context(), v.caller, v.ref, ".", "", agentapi.MaxListEntries)
	if err != nil && sandbox.CodeOf(err) != sandbox.FileNotFound {
		return err
	}
	out := struct {
		Files     []fileDetail `json:"files"`
		Total     int          `json:"total"`
		Truncated bool         `json:"truncated,omitempty"`
	}{Files: []fileDetail{}, Truncated: list.Truncated}
	for _, f := range list.Entries {
		if f.Type == agentapi.TypeFile {
			out.Files = append(out.Files, detailOf(f.Name, f))
		}
	}
	out.Total = len(out.Files)
	return answer(w, out)
}

// filename returns the file name in the path or query of a request.
func filename(r *http.Request) (string, error) {
	name := r.PathValue("filename")
	if name == "" {
		name = r.URL.Query().Get("filename")
	}
	return name, checkFilename(name)
}

func (d *DataPlane) download(w http.ResponseWriter, r *http.Request, v *visit) error {
	name, err := filename(r)
	if err != nil {
		return err
	}
	return content.Serve(w, r, func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
		body, info, err := d.files().ReadFile(r.Context(), v.caller, v.ref, name, offset, length)
		if err == nil {
			w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
		}
		return body, info, err
	})
}

func (d *DataPlane) deleteFile(w http.ResponseWriter, r *http.Request, v *visit) error {
	name, err := filename(r)
	if err != nil {
		return err
	}
	return d.remove(w, r, v, name)
}

// deleteNamed is deleteFile with the name in a JSON body.
func (d *DataPlane) deleteNamed(w http.ResponseWriter, r *http.Request, v *visit) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	name := in.str("filename", true, 1, 0)
	if err := in.err(); err != nil {
		return err
	}
	if err := checkFilename(name); err != nil {
		return err
	}
	return d.remove(w, r, v, name)
}

func (d *DataPlane) remove(w http.ResponseWriter, r *http.Request, v *visit, name string) error {
	if err := d.files().Remove(r.Context(), v.caller, v.ref, name, false); err != nil {
		return err
	}
	return answer(w, struct {
		Success  bool   `json:"success"`
		Filename string `json:"filename"`
	}{true, name})
}
