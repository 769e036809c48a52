package lifecycle_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Files returns the requested path as the only file.
func (c *images) Files(_ context.Context, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	return sandbox.SnapshotFilePage{Files: []sandbox.SnapshotFile{{Path: digest + " " + q.Path}}}, nil
}

// Open returns a root filesystem in which each name is a file; the other tests of diffs are on gVisor.
func (c *images) Open(context.Context, string) (snapshot.Rootfs, error) {
	c.mu.Lock()
	opening := c.opening
	c.mu.Unlock()
	if opening != nil {
		opening()
	}
	return anyFile{}, nil
}

type anyFile struct{ snapshot.Rootfs }

func (anyFile) Stat(name string) (sandbox.SnapshotFile, error) {
	return sandbox.SnapshotFile{Path: name, Size: 4}, nil
}

func (r anyFile) Content(name string) (sandbox.SnapshotFile, io.Reader, error) {
	f, err := r.Stat(name)
	return f, strings.NewReader("data"), err
}

func (anyFile) Close() {}

// Archive is, packed or not, what was asked for.
func (c *images) Archive(_ context.Context, digest, path string, compress bool) (io.ReadCloser, error) {
	if compress {
		path += ".gz"
	}
	return io.NopCloser(strings.NewReader(digest + " " + path)), nil
}

func readAll(t *testing.T, r io.ReadCloser, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSnapshotFiles(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	own, open := s.snap("s", snapshot.Request{Name: "own"}), s.snap("s", snapshot.Request{Name: "open", Public: true})
	stranger := sandbox.Caller{User: "else", Workspace: sandbox.NewWorkspaceID()}
	if page, err := s.Snapshots().Files(t.Context(), s.caller, "own", sandbox.SnapshotFileQuery{Path: "/x"}); err != nil || page.Files[0].Path != own.Digest+" /x" {
		t.Errorf("SnapshotFiles = %+v, %v", page, err)
	}
	for format, want := range map[string]string{"": "/x.gz", "tar.gz": "/x.gz", "tar": "/x"} {
		r, err := s.Snapshots().Archive(t.Context(), s.caller, "own", "/x", format)
		if got := readAll(t, r, err); got != own.Digest+" "+want {
			t.Errorf("SnapshotArchive as %q = %q", format, got)
		}
	}
	if _, err := s.Snapshots().Archive(t.Context(), s.caller, "own", "/x", "zip"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("SnapshotArchive as zip = %v, want it refused", err)
	}
	if _, err := s.Snapshots().Files(t.Context(), s.caller, "own", sandbox.SnapshotFileQuery{Limit: sandbox.SnapshotFilesMax + 1}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("SnapshotFiles of too many = %v, want it refused", err)
	}
	if _, err := s.Snapshots().Files(t.Context(), stranger, string(open.ID), sandbox.SnapshotFileQuery{}); err != nil {
		t.Errorf("a stranger reads a public snapshot: %v", err)
	}
	_, filesErr := s.Snapshots().Files(t.Context(), stranger, string(own.ID), sandbox.SnapshotFileQuery{})
	_, archiveErr := s.Snapshots().Archive(t.Context(), stranger, string(own.ID), "", "")
	_, _, keyErr := s.Snapshots().DownloadKey(t.Context(), stranger, string(own.ID), "")
	for _, err := range []error{filesErr, archiveErr, keyErr} {
		if sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("a stranger reads a snapshot: %v, want not found", err)
		}
	}
}

func TestDownloads(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	sn := s.snap("s", snapshot.Request{Name: "n"})
	key, until, err := s.Snapshots().DownloadKey(t.Context(), s.caller, "n", "/a b/%/c")
	if err != nil || !until.After(time.Now()) {
		t.Fatalf("SnapshotDownload = until %v, %v", until, err)
	}
	open := func(key string) (string, error) {
		r, _, err := s.Snapshots().OpenDownload(t.Context(), key)
		if err != nil {
			return "", err
		}
		return readAll(t, r, nil), nil
	}
	if got, err := open(key); err != nil || got != sn.Digest+" /a b/%/c.gz" {
		t.Errorf("the download = %q, %v", got, err)
	}
	reader := s.caller
	reader.ReadOnly = true
	if _, _, err := s.Snapshots().DownloadKey(t.Context(), reader, "n", ""); sandbox.CodeOf(err) != sandbox.Forbidden {
		t.Errorf("who may only read gets a key: %v", err)
	}
	if err := s.Snapshots().Delete(t.Context(), s.caller, "n"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(key); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the key of a deleted snapshot: %v, want not found", err)
	}
}

func TestSnapshotsAreReadByFewAtATime(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "s"})
	sn := s.snap("s", snapshot.Request{Name: "n", Public: true})
	read := func(c sandbox.Caller) (io.ReadCloser, error) {
		return s.Snapshots().Archive(t.Context(), c, string(sn.ID), "", "")
	}
	var open []io.ReadCloser
	var last error
	for range 5 {
		r, err := read(s.caller)
		if err != nil {
			last = err
			break
		}
		open = append(open, r)
	}
	if len(open) != 4 || sandbox.CodeOf(last) != sandbox.QuotaExceeded {
		t.Fatalf("a workspace reads %d at a time, then %v", len(open), last)
	}
	for sandbox.CodeOf(last) != sandbox.Unavailable && len(open) < 100 {
		var r io.ReadCloser
		if r, last = read(sandbox.Caller{User: "u", Workspace: sandbox.NewWorkspaceID()}); last == nil {
			open = append(open, r)
		}
	}
	if len(open) != 16 {
		t.Errorf("all together read %d at a time, then %v", len(open), last)
	}
	for _, r := range open {
		_ = r.Close()
		_ = r.Close() // counts once
	}
	if r, err := read(s.caller); err != nil {
		t.Errorf("after all have ended: %v", err)
	} else {
		_ = r.Close()
	}
}
