package agentuity_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/apitest"
)

// post sends a body of files as it is.
func post(t *testing.T, s *apitest.Server, id string, body io.Reader) (int, answer) {
	t.Helper()
	r := s.Request("POST", "/fs/"+id, nil)
	r.Body, r.ContentLength = io.NopCloser(body), -1
	a := s.Send(r)
	var out answer
	a.Into(t, &out)
	return a.Status, out
}

func TestLargeFilesAreWrittenWhileTheyArrive(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // 64 MiB
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, `{"files":[{"path":"big","content":"`)
		e := base64.NewEncoder(base64.StdEncoding, out)
		_, _ = e.Write(content)
		_ = e.Close()
		_, _ = io.WriteString(out, `"},{"path":"small","content":"eA=="}]}`)
		_ = out.Close()
	}()
	if status, a := post(t, s, id, in); status != http.StatusOK || a.Data["filesWritten"] != 2.0 {
		t.Fatalf("write = %d %+v, want 2 files", status, a)
	}
	if got := s.Do("GET", "/fs/"+id+"?path=big", nil).Body; !bytes.Equal(got, content) {
		t.Errorf("big has %d bytes, want the %d that were sent", len(got), len(content))
	}
	if got := s.Do("GET", "/fs/"+id+"?path=small", nil).Body; string(got) != "x" {
		t.Errorf("small = %q, want x", got)
	}
}

func TestBodiesWithFiles(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	for name, c := range map[string]struct {
		body    string
		files   map[string]string // that the sandbox has then
		written any               // nil when the body is refused
		message string
	}{
		"ContentFirst": {body: ` { "files" : [ {"content":"eHk=", "mode":{"a":["]\""]}, "path":"first"} ], "other": null } `, files: map[string]string{"first": "xy"}, written: 1.0},
		"Escapes":      {body: `{"files":[{"path":"s\u006cash","content":"\/\/\u00e9="}]}`, message: "files[0].content"},
		"Slashes":      {body: `{"files":[{"path":"s\u006cash","content":"Pz8\/\r\nPw\u003d="}]}`, files: map[string]string{"slash": "????"}, written: 1.0},
		"NoContent":    {body: `{"files":[{"path":"empty"},{"path":"null","content":null}]}`, files: map[string]string{"empty": "", "null": ""}, written: 2.0},
		"NoFiles":      {body: `{}`, written: 0.0},
		"Null":         {body: `{"files":null}`, written: 0.0},
		"EmptyArray":   {body: `{"files":[]}`, written: 0.0},
		"Empty":        {body: ``, message: "body"},
		"NoPath":       {body: `{"files":[{"path":"kept","content":"eA=="},{"content":"eA=="}]}`, files: map[string]string{"kept": "x"}, message: "files[1].path"},
		"NUL":          {body: `{"files":[{"path":"a\u0000"}]}`, message: "files[0].path"},
		"BadContent":   {body: `{"files":[{"path":"bad","content":"e?=="}]}`, message: "files[0].content"},
		"AfterPadding": {body: `{"files":[{"path":"bad","content":"eA==eA=="}]}`, message: "files[0].content"},
		"Number":       {body: `{"files":[{"path":"bad","content":7}]}`, message: "files[0].content"},
		"TwoPaths":     {body: `{"files":[{"path":"bad","path":"bad2"}]}`, message: "files[0].path"},
		"TwoContents":  {body: `{"files":[{"content":"eA==","content":"eA==","path":"bad"}]}`, message: "files[0].content"},
		"Object":       {body: `{"files":{}}`, message: "files"},
		"Cut":          {body: `{"files":[{"path":"cut","content":"eHh4`, message: "not a valid JSON"},
		"Trailing":     {body: `{"files":[]} x`, message: "not a valid JSON"},
		"LongPath":     {body: `{"files":[{"path":"` + strings.Repeat("a", 70000) + `"}]}`, message: "files[0].path"},
		"TooMany":      {body: `{"files":[` + strings.Repeat(`{"path":"many"},`, 1000) + `{"path":"many"}]}`, message: "at most 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			status, a := post(t, s, id, strings.NewReader(c.body))
			if d := cmp.Diff(c.written, a.Data["filesWritten"]); d != "" || (status == http.StatusOK) != (c.written != nil) || !strings.Contains(a.Message, c.message) {
				t.Errorf("write = %d %+v, want %v written, message with %q", status, a, c.written, c.message)
			}
			for path, want := range c.files {
				if got := s.Do("GET", fmt.Sprintf("/fs/%s?path=%s", id, path), nil); got.Status != http.StatusOK || string(got.Body) != want {
					t.Errorf("%s = %d %q, want %q", path, got.Status, got.Body, want)
				}
			}
			for _, path := range []string{"bad", "cut"} {
				if got := s.Do("GET", fmt.Sprintf("/fs/%s?path=%s", id, path), nil); got.Status != http.StatusNotFound {
					t.Errorf("%s = %d after a body that is refused, want 404", path, got.Status)
				}
			}
		})
	}
}
