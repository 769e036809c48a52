package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/modbox/modbox/client"
)

// cutting is a server that ends the connections of uploads in their middle.
type cutting struct {
	t    *testing.T
	cuts int // how many

	mu       sync.Mutex
	requests int
	got      []byte // the content of the last upload
}

func (s *cutting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.requests <= s.cuts {
		if _, err := io.CopyN(io.Discard, r.Body, 1000); err != nil {
			s.t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}
	var err error
	if s.got, err = io.ReadAll(r.Body); err != nil {
		s.t.Error(err)
	}
	_, _ = io.WriteString(w, "{}")
}

func (s *cutting) seen() (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.got
}

// TestUploadsAreRepeated has connections break while a file and an archive are sent.
func TestUploadsAreRepeated(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	name := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(from int64) io.Reader {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Errorf("the client has closed the file: %v", err)
			}
		})
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return f
	}
	pipe := func() io.Reader {
		r, w := io.Pipe()
		go func() { _, err := w.Write(content); w.CloseWithError(err) }()
		t.Cleanup(func() { r.Close() })
		return r
	}
	for name, tc := range map[string]struct {
		content  func() io.Reader
		cuts     int
		requests int
		want     []byte // nil if the upload fails
	}{
		"memory":              {func() io.Reader { return bytes.NewReader(content) }, 2, 3, content},
		"file":                {func() io.Reader { return open(0) }, 2, 3, content},
		"rest_of_a_file":      {func() io.Reader { return open(1 << 10) }, 1, 2, content[1<<10:]},
		"too_often":           {func() io.Reader { return open(0) }, 10, 4, nil},
		"stream":              {pipe, 1, 1, nil},
		"stream_without_cuts": {pipe, 0, 1, content},
		"empty":               {func() io.Reader { return strings.NewReader("") }, 0, 1, []byte{}},
	} {
		for call, send := range map[string]func(c *client.Client) error{
			"write": func(c *client.Client) error {
				_, err := c.Sandboxes.Files.Write(t.Context(), "a", "/f", tc.content(), client.WriteOptions{})
				return err
			},
			"archive": func(c *client.Client) error {
				return c.Sandboxes.Files.UploadArchive(t.Context(), "a", "/f", tc.content(), client.UploadArchiveOptions{})
			},
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				s := &cutting{t: t, cuts: tc.cuts}
				err := send(serve(t, s.ServeHTTP))
				requests, got := s.seen()
				if (err == nil) != (tc.want != nil) || requests != tc.requests || err == nil && !bytes.Equal(got, tc.want) {
					t.Errorf("%d requests, %d bytes, %v; want %d and %d", requests, len(got), err, tc.requests, len(tc.want))
				}
			})
		}
	}
}

// TestUnreadableContent has content that cannot be read, which another attempt would not change.
func TestUnreadableContent(t *testing.T) {
	broken := errors.New("the disk is broken")
	content := &counted{Reader: io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(broken)), Seeker: bytes.NewReader(nil)}
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	_, err := c.Sandboxes.Files.Write(t.Context(), "a", "/f", content, client.WriteOptions{})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if content.reads != 2 {
		t.Errorf("the content was read %d times, want 2: its beginning, and the error", content.reads)
	}
}

// counted counts its reads.
type counted struct {
	io.Reader
	io.Seeker
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}
