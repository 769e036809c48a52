package console

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

//go:embed all:dist
var dist embed.FS

// unbuilt is the page of a program without the console's files.
//
//go:embed unbuilt.html
var unbuilt []byte

// nonceMark is where the first page has the nonce of its styles.
const nonceMark = "__NONCE__"

// pagePolicy is the content security policy of the pages: everything comes from this host, no script
// stands in a page, and nothing is evaluated. A style element needs the nonce: the terminal makes
// such elements. Where the pages may have frames is added to it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-" + nonceMark + "'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// files serves the files of the pages.
type files struct {
	page   []byte // the first page, for every path that is not a file
	policy string // of the first page, with nonceMark in place of the nonce
	packed map[string][]byte
}

// builtFiles returns the files in this program, whose pages may frame desktops and previews of ports.
func builtFiles(desktops string) (*files, error) {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	return readFiles(built, desktops)
}

// readFiles reads the files of a build: index.html, and all others packed by gzip as NAME.gz. Without
// index.html the page says how to build them.
func readFiles(built fs.FS, desktops string) (*files, error) {
	policy := pagePolicy + "; frame-src " + strings.TrimSpace("'self' "+desktops)
	page, err := fs.ReadFile(built, "index.html")
	if errors.Is(err, fs.ErrNotExist) {
		return &files{page: unbuilt, policy: policy}, nil
	}
	if err != nil {
		return nil, err
	}
	f := &files{page: page, policy: policy, packed: map[string][]byte{}}
	err = fs.WalkDir(built, ".", func(name string, d fs.DirEntry, err error) error {
		plain, ok := strings.CutSuffix(name, ".gz")
		if err != nil || d.IsDir() || !ok {
			return err
		}
		f.packed["/"+plain], err = fs.ReadFile(built, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of the pages: %w", err)
	}
	return f, nil
}

// ServeHTTP answers with a file, or with the first page, which shows what belongs to its path.
func (f *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		edge.Error(w, r, sandbox.Errorf(sandbox.NotFound, "there is no route %s %s", r.Method, r.URL.Path))
		return
	}
	packed, ok := f.packed[r.URL.Path]
	switch {
	case ok && r.URL.Path == outputPath:
		protectOutput(w.Header())
		f.serve(w, r, packed)
	case ok:
		f.serve(w, r, packed)
	case strings.HasPrefix(r.URL.Path, "/assets/"):
		edge.Error(w, r, sandbox.Errorf(sandbox.NotFound, "the console has no such file; load its page again"))
	default:
		nonce := rand.Text()
		h := w.Header()
		h.Set("Content-Security-Policy", strings.ReplaceAll(f.policy, nonceMark, nonce))
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(bytes.ReplaceAll(f.page, []byte(nonceMark), []byte(nonce))) // an error is the client's
	}
}

// serve answers with a packed file.
func (f *files) serve(w http.ResponseWriter, r *http.Request, packed []byte) {
	h := w.Header()
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(r.URL.Path)))
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(r.URL.Path, "/assets/") { // their names change with their content
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		edge.Error(w, r, fmt.Errorf("unpack %s: %w", r.URL.Path, err))
		return
	}
	_, _ = io.Copy(w, z)
}
