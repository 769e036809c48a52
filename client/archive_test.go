package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
)

// fileLine is a line of a watch, whose error the client makes an [client.Error].
type fileLine struct {
	client.FileEvent
	Code    client.Code `json:"code"`
	Message string      `json:"message"`
}

func TestWriteFiles(t *testing.T) {
	var got wire.WriteFiles
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method+" "+r.URL.Path != "POST /v1/sandboxes/a%2Fb/files/batch" && r.URL.Path != "/v1/sandboxes/a/b/files/batch" {
			t.Errorf("request %s %s", r.Method, r.URL.Path)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"count":2}`)
	})
	if err := c.Sandboxes.Files.WriteMany(t.Context(), "a/b", []client.File{{Path: "/x", Content: []byte{0, 1}, Mode: 0o755}, {Path: "/empty"}}); err != nil {
		t.Fatal(err)
	}
	want := wire.WriteFiles{Files: []wire.NewFile{{Path: "/x", Content: []byte{0, 1}, Mode: "0755"}, {Path: "/empty", Content: []byte{}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestArchives(t *testing.T) {
	var sent []byte
	var query string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		switch r.Method {
		case http.MethodPut:
			sent, _ = io.ReadAll(r.Body)
			w.WriteHeader(http.StatusNoContent)
		case http.MethodGet:
			_, _ = w.Write([]byte("archive"))
			if r.URL.Query().Get("format") == "zip" {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	})
	if err := c.Sandboxes.Files.UploadArchive(t.Context(), "x", "/w", strings.NewReader("content"), client.UploadArchiveOptions{Format: client.Zip, KeepLinks: true}); err != nil {
		t.Fatal(err)
	}
	if string(sent) != "content" || query != "format=zip&keep_links=true&path=%2Fw" {
		t.Errorf("sent %q with %s", sent, query)
	}
	r, err := c.Sandboxes.Files.DownloadArchive(t.Context(), "x", "/w", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != "archive" || err != nil || query != "path=%2Fw" {
		t.Errorf("got %q, %v with %s", got, err, query)
	}
	if r, err = c.Sandboxes.Files.DownloadArchive(t.Context(), "x", "/w", client.Zip); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err == nil {
		t.Errorf("an archive that breaks off reads as %q without an error", got)
	}
}

func TestWatchFiles(t *testing.T) {
	answers := map[string]string{
		"/whole":  `{"type":"ready"}|{"type":"created","path":"/a","directory":true}|{"type":"ping"}|{"type":"from the future"}|{"type":"ended"}|`,
		"/error":  `{"type":"ready"}|{"type":"error","code":"ended","message":"it has ended"}|`,
		"/cut":    `{"type":"ready"}|{"type":"cre`,
		"/silent": ``,
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.ReplaceAll(answers[r.URL.Query().Get("path")], "|", "\n"))
	})
	watch := func(path string) *client.FileWatch {
		t.Helper()
		w, err := c.Sandboxes.Files.Watch(t.Context(), "x", path, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	w := watch("/whole")
	if e, err := w.Next(); err != nil || e != (client.FileEvent{Type: client.FileCreated, Path: "/a", Directory: true}) {
		t.Errorf("Next() = %+v, %v", e, err)
	}
	if e, err := w.Next(); err != io.EOF {
		t.Errorf("Next() at the end = %+v, %v", e, err)
	}
	if _, err := watch("/error").Next(); !client.IsCode(err, client.Ended) {
		t.Errorf("Next() = %v, want code ended", err)
	}
	if _, err := watch("/cut").Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Next() of a watch that broke off = %v", err)
	}
	if _, err := c.Sandboxes.Files.Watch(t.Context(), "x", "/silent", false); err == nil {
		t.Error("a watch that never became ready has no error")
	}
}
