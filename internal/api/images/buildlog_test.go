package images

import (
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestEndOfTheBody: the HTTP server notices that a client leaves when the body was read to its end, also if the end comes after
// the context.
func TestEndOfTheBody(t *testing.T) {
	for name, c := range map[string]struct {
		after string
		code  sandbox.Code
	}{
		"the last boundary":  {"--\r\n", ""},
		"an epilogue":        {"--\r\nsomething", ""},
		"another large part": {"\r\nContent-Disposition: form-data; name=\"more\"\r\n\r\n" + strings.Repeat("x", 8<<10), sandbox.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"context\"\r\n\r\nfiles\r\n--b" + c.after)
			body := iotest.OneByteReader(text) // so that nothing is read that is not asked for
			parts := multipart.NewReader(body, "b")
			part, err := parts.NextPart()
			if err != nil {
				t.Fatal(err)
			}
			u := &uploadReader{Reader: part, rest: body, control: http.NewResponseController(httptest.NewRecorder()), within: time.Hour, after: time.Now()}
			data, err := io.ReadAll(u)
			if string(data) != "files" || sandbox.CodeOf(err) != c.code {
				t.Fatalf("the context is %q, %v; want code %q", data, err, c.code)
			}
			if c.code == "" && text.Len() > 0 {
				t.Errorf("%d bytes of the body are not read", text.Len())
			}
		})
	}
}
