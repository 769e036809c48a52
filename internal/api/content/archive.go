package content

import (
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/edge"
)

// writeTime bounds a single write of an answer: a client that reads nothing for so long is disconnected.
const writeTime = time.Minute

// Types are the media types of archives.
var Types = map[agentapi.Format]string{
	agentapi.FormatTarGzip: "application/gzip",
	agentapi.FormatZip:     "application/zip",
	agentapi.FormatTar:     "application/x-tar",
}

// SendArchive sends an archive as it is packed, and closes it.
func SendArchive(w http.ResponseWriter, r *http.Request, body io.ReadCloser, name string, format agentapi.Format) error {
	defer body.Close()
	w.Header().Set("Content-Type", Types[format])
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + "." + string(format)}))
	w.WriteHeader(http.StatusOK)
	if err := CopyFlushing(w, body); err != nil {
		edge.Log(r.Context(), err)
		panic(http.ErrAbortHandler) // so that a part is not taken for the whole
	}
	return nil
}

// CopyFlushing sends what body has as soon as it comes, to a client that takes it.
func CopyFlushing(w http.ResponseWriter, body io.Reader) error {
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
