package api_test

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

const x = "/v1/sandboxes/x/files"

func TestWriteManyFiles(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	files := []wire.NewFile{
		{Path: "/new/a", Content: []byte("one")}, {Path: "/new/deep/b", Content: []byte{0, 255}, Mode: "0700"}, {Path: "/new/a", Content: []byte("two")},
	}
	var got wire.WrittenFiles
	s.Want(200, "POST", x+"/batch", wire.WriteFiles{Files: files}).Into(t, &got)
	if got.Count != 3 {
		t.Errorf("count = %d", got.Count)
	}
	if a := s.Want(200, "GET", x+"?path=/new/a", nil); string(a.Body) != "two" {
		t.Errorf("content = %q", a.Body)
	}
	var info wire.FileInfo
	s.Want(200, "GET", x+"/stat?path=/new/deep/b", nil).Into(t, &info)
	if info.Mode != "0700" || info.SizeBytes != 2 {
		t.Errorf("file = %+v", info)
	}
	s.Want(200, "POST", x+"/batch", wire.WriteFiles{Files: []wire.NewFile{{Path: "/new/empty", Content: wire.Base64{}}}})
	if a := s.Want(200, "GET", x+"?path=/new/empty", nil); len(a.Body) != 0 {
		t.Errorf("content = %q", a.Body)
	}
	s.Want(200, "POST", x+"/batch", wire.WriteFiles{Files: []wire.NewFile{}})

	bad := []wire.NewFile{{Path: "/new/first", Content: []byte("x")}, {Path: "/new/deep", Content: []byte("x")}, {Path: "/new/last", Content: []byte("x")}}
	if p := problem(t, s.Do("POST", x+"/batch", wire.WriteFiles{Files: bad})); p.Code != sandbox.Conflict || !strings.Contains(p.Detail, "/new/deep") {
		t.Errorf("a file over a directory: %+v", p)
	}
	s.Want(200, "GET", x+"?path=/new/first", nil)
	s.Want(404, "GET", x+"?path=/new/last", nil)

	many := make([]wire.NewFile, 1001)
	for i := range many {
		many[i] = wire.NewFile{Path: fmt.Sprint("/many/", i), Content: []byte{}}
	}
	large := []wire.NewFile{{Path: "/l", Content: make([]byte, 33<<20)}}
	for field, body := range map[string]any{
		"files": wire.WriteFiles{Files: many}, "mode": wire.WriteFiles{Files: []wire.NewFile{{Path: "/a", Content: []byte{}, Mode: "rwx"}}},
		"files[0].path": `{"files":[{"content":"eA=="}]}`, "files[0].content": `{"files":[{"path":"/a"}]}`, "body": `{"files":[{"path":"/a","content":"*"}]}`,
	} {
		if p := problem(t, s.Do("POST", x+"/batch", body)); p.Code != sandbox.Invalid || len(p.Errors) == 0 || !strings.HasPrefix(field, p.Errors[0].Location) {
			t.Errorf("wrong %s: %+v", field, p)
		}
	}
	if p := problem(t, s.Do("POST", x+"/batch", wire.WriteFiles{Files: large})); p.Code != sandbox.Invalid {
		t.Errorf("too much: %+v", p)
	}
}

func TestArchivesOverTheAPI(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	s.Want(200, "POST", x+"/batch", wire.WriteFiles{Files: []wire.NewFile{
		{Path: "/from/run.sh", Content: []byte("#!/bin/sh"), Mode: "0755"}, {Path: "/from/sub/data", Content: bytes.Repeat([]byte("x"), 1<<20)},
	}})
	for format, media := range map[string]string{"": "application/gzip", "tar.gz": "application/gzip", "zip": "application/zip", "tar": "application/x-tar"} {
		q := url.Values{"path": {"/from"}}
		if format != "" {
			q.Set("format", format)
		}
		a := s.Want(200, "GET", x+"/archive?"+q.Encode(), nil)
		if got := a.Header.Get("Content-Type"); got != media || !strings.Contains(a.Header.Get("Content-Disposition"), "from.") {
			t.Errorf("%s: %v", format, a.Header)
		}
		q.Set("path", "/to-"+format)
		s.Want(204, "PUT", x+"/archive?"+q.Encode(), bytes.NewReader(a.Body))
		var info wire.FileInfo
		s.Want(200, "GET", x+"/stat?path=/to-"+format+"/run.sh", nil).Into(t, &info)
		if info.Mode != "0755" {
			t.Errorf("%s: %+v", format, info)
		}
		if b := s.Want(200, "GET", x+"?path=/to-"+format+"/sub/data", nil); len(b.Body) != 1<<20 {
			t.Errorf("%s: %d bytes", format, len(b.Body))
		}
	}
	var evil bytes.Buffer
	z := zip.NewWriter(&evil)
	if _, err := z.Create("../../etc/evil"); err != nil {
		t.Fatal(err)
	}
	z.Close()
	for name, tc := range map[string]struct {
		method, query string
		body          io.Reader
		code          sandbox.Code
	}{
		"hostile":          {"PUT", "path=/w", &evil, sandbox.Invalid},
		"rubbish":          {"PUT", "path=/w", strings.NewReader("rubbish"), sandbox.Invalid},
		"nothing":          {"PUT", "path=/w", nil, sandbox.Invalid},
		"no-path":          {"PUT", "", strings.NewReader("x"), sandbox.Invalid},
		"format":           {"PUT", "path=/w&format=rar", strings.NewReader("x"), sandbox.Invalid},
		"download-missing": {"GET", "path=/missing", nil, sandbox.FileNotFound},
		"download-format":  {"GET", "path=/from&format=rar", nil, sandbox.Invalid},
		"into-a-file":      {"PUT", "path=/from/run.sh", bytes.NewReader(evil.Bytes()), sandbox.Conflict},
	} {
		var body any
		if tc.body != nil {
			body = tc.body
		}
		if p := problem(t, s.Do(tc.method, x+"/archive?"+tc.query, body)); p.Code != tc.code {
			t.Errorf("%s: %+v, want %s", name, p, tc.code)
		}
	}
}

func TestHostileArchiveIsRefusedWhileItIsSent(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	r, w := io.Pipe()
	go func() { // a first entry that is refused, then no end
		z := gzip.NewWriter(w)
		tw := tar.NewWriter(z)
		err := tw.WriteHeader(&tar.Header{Name: "/etc/evil", Size: 1 << 40, Typeflag: tar.TypeReg})
		for block := make([]byte, 1<<20); err == nil; {
			_, err = tw.Write(block)
		}
	}()
	defer r.Close()
	req := s.Request("PUT", x+"/archive?path=/w", r)
	if p := problem(t, s.Send(req)); p.Code != sandbox.Invalid || !strings.Contains(p.Detail, "/etc/evil") {
		t.Errorf("answer: %+v", p)
	}
}

func TestWatchOverTheAPI(t *testing.T) {
	s := apitest.NewWith(t, func(c *api.Config, _ *api.Deps) { c.Ping = time.Millisecond })
	running(t, s, "x")
	s.Want(200, "POST", x+"/mkdir", wire.Mkdir{Path: "/w"})
	resp, err := s.HTTP.Do(s.Request("GET", x+"/watch?path=/w&recursive=true", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("answer %d %v", resp.StatusCode, resp.Header)
	}
	sc, pings := bufio.NewScanner(resp.Body), 0
	next := func() (e wire.FileEvent) {
		t.Helper()
		for sc.Scan() {
			e = wire.FileEvent{}
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if e.Type != wire.StreamPing {
				return e
			}
			pings++
		}
		t.Fatalf("the watch broke off: %v", sc.Err())
		return e
	}
	if e := next(); e.Type != "ready" {
		t.Fatalf("the first event = %+v", e)
	}
	for pings == 0 {
		if sc.Scan(); strings.Contains(sc.Text(), `"ping"`) {
			pings++
		}
	}
	var got []wire.FileEvent
	nextChange := func() wire.FileEvent {
		t.Helper()
		e := next()
		for e.Type == "attributes" { // of the modes that mkdir sets, if it is seen
			e = next()
		}
		got = append(got, e)
		return e
	}
	s.Want(200, "POST", x+"/mkdir", wire.Mkdir{Path: "/w/a/b", Parents: true})
	// The content of a new directory that is removed before the watch reads it is not reported.
	nextChange()
	nextChange()
	s.Want(204, "DELETE", x+"?path=/w&recursive=true", nil)
	for nextChange().Type != wire.WatchEnded { // nextChange collects the events
	}
	if sc.Scan() {
		t.Errorf("after the end: %s", sc.Text())
	}
	want := []wire.FileEvent{
		{Type: "created", Path: "/w/a", Directory: true}, {Type: "created", Path: "/w/a/b", Directory: true},
		{Type: "removed", Path: "/w/a/b", Directory: true}, {Type: "removed", Path: "/w/a", Directory: true},
		{Type: "removed", Path: "/w", Directory: true}, {Type: wire.WatchEnded},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p := problem(t, s.Do("GET", x+"/watch?path=/missing", nil)); p.Code != sandbox.FileNotFound {
		t.Errorf("watching what is missing: %+v", p)
	}
	if p := problem(t, s.Do("GET", x+"/watch?path=/&recursive=maybe", nil)); p.Code != sandbox.Invalid {
		t.Errorf("recursive=maybe: %+v", p)
	}
}

func TestWatchTellsTheSandboxsEnd(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	resp, err := s.HTTP.Do(s.Request("GET", x+"/watch?path=/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Scan()
	s.Want(200, "DELETE", "/v1/sandboxes/x", nil)
	var last wire.FileEvent
	for sc.Scan() {
		if err := json.Unmarshal(sc.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
	}
	if last.Type != wire.StreamError || last.Code != string(sandbox.Ended) {
		t.Errorf("the last event = %+v", last)
	}
}
