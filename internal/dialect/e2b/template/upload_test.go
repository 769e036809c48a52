package template

import (
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// copies returns a recipe that copies the files with a hash.
func copies(hash string) *Recipe {
	return &Recipe{Steps: []Step{{Type: stepCopy, Args: []string{"a", "b"}, FilesHash: hash}}}
}

// TestTwoBuildsAtOnce has two builds of one template, each with its own files and with files of both: each finds
// all its files, however the requests of their clients follow each other.
func TestTwoBuildsAtOnce(t *testing.T) {
	b, r := newBuilds(t)
	r.wait = make(chan struct{})
	c := workspace("w")
	first, second := mustBegin(t, b, c, "app:v1"), mustBegin(t, b, c, "app:v2")
	for _, hash := range []string{"of-first", "of-second", "of-both"} {
		if err := send(t, b, c, "app", hash, archive(t, "a", hash, false)); err != nil {
			t.Fatal(err)
		}
	}
	both := copies("of-both")
	start := func(o *Build, own string) {
		t.Helper()
		if err := b.Start(o, "base", &Recipe{Steps: append(copies(own).Steps, both.Steps...)}); err != nil {
			t.Fatalf("the build with %s: %v", own, err)
		}
	}
	start(first, "of-first")
	// The client of the second build asks after the start of the first.
	if secret, err := b.Address(c, "app", "of-both"); err != nil || secret != "" {
		t.Errorf("Address of present files = %q, %v, want none", secret, err)
	}
	start(second, "of-second")
	if _, err := b.Address(c, "app", "of-both"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Address without a build that waits: %v, want not_found", err)
	}
	close(r.wait)
	for _, o := range []*Build{first, second} {
		if s, reason := ended(t, o); s != Ready {
			t.Errorf("the build is %s: %+v", s, reason)
		}
	}
	end(t, b.deps.Work) // the files go after the end of their builds
	if n := b.deps.Uploads.UploadedBytes(c.Workspace); n != 0 {
		t.Errorf("%d bytes count after the builds", n)
	}
	for name, want := range map[string]string{"1/a": "of-first of-second", "2/a": "of-both"} {
		if got := r.files[name]; got == "" || !strings.Contains(want, got) {
			t.Errorf("the context has %q = %q, want one of %q", name, got, want)
		}
	}
}

// TestMissingFiles starts a build without its files, which goes on waiting.
func TestMissingFiles(t *testing.T) {
	b, _ := newBuilds(t)
	c := workspace("w")
	o := mustBegin(t, b, c, "app")
	if err := b.Start(o, "base", copies("h")); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "steps[0].filesHash") {
		t.Errorf("a start without files: %v, want invalid steps[0].filesHash", err)
	}
	if err := send(t, b, c, "app", "h", archive(t, "a", "b", false)); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(o, "base", copies("h")); err != nil {
		t.Fatal(err)
	}
	if s, reason := ended(t, o); s != Ready {
		t.Errorf("the build is %s: %+v", s, reason)
	}
}

// TestDiskQuota uploads, while an upload is under way, more than the quota of the disk admits.
func TestDiskQuota(t *testing.T) {
	b, _ := newBuilds(t)
	b.deps.Quotas = quotas{b.deps.Uploads, 1000}
	c := workspace("w")
	mustBegin(t, b, c, "app")
	secret, err := b.Address(c, "app", "slow")
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	slow := make(chan error, 1)
	go func() { slow <- b.Upload(t.Context(), "app", "slow", secret, 600, read) }()
	if _, err := io.WriteString(write, "x"); err != nil { // the upload has begun
		t.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 600))
	if err := send(t, b, c, "app", "other", body); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("an upload beside another: %v, want quota_exceeded", err)
	}
	_ = write.Close() // a pipe has no error
	if err := <-slow; sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("the upload that broke off: %v, want invalid", err)
	}
	if n := b.deps.Uploads.UploadedBytes(c.Workspace); n != 0 {
		t.Errorf("%d bytes count without an upload", n)
	}
	if err := send(t, b, c, "app", "other", body); err != nil {
		t.Errorf("an upload after another broke off: %v", err)
	}
	if n := b.deps.Uploads.UploadedBytes(c.Workspace); n != 600 {
		t.Errorf("%d bytes count with an upload of 600", n)
	}
}

// TestDiskFills has the quota used up by others while an upload is under way.
func TestDiskFills(t *testing.T) {
	b, _ := newBuilds(t)
	b.deps.Quotas = quotas{b.deps.Uploads, 3 * uploadStep}
	c := workspace("w")
	mustBegin(t, b, c, "app")
	secret, err := b.Address(c, "app", "h")
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := b.Upload(t.Context(), "app", "h", secret, 2*uploadStep, read)
		_ = read.CloseWithError(io.ErrClosedPipe) // ends the writer
		done <- err
	}()
	if _, err := write.Write(make([]byte, uploadStep-1)); err != nil {
		t.Fatal(err)
	}
	fill(t, b, "w", 2*uploadStep)
	_, _ = write.Write(make([]byte, uploadStep)) // ends early
	if err := <-done; sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("an upload to a disk that fills: %v, want quota_exceeded", err)
	}
}

// TestSweep lets the time of a build pass without another request: its files go.
func TestSweep(t *testing.T) {
	b, _ := newBuilds(t)
	c := workspace("w")
	o := mustBegin(t, b, c, "app")
	if err := send(t, b, c, "app", "h", archive(t, "a", "b", false)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.now = func() time.Time { return began.Add(keptFor + time.Second) }
	b.SweepEvery(time.Millisecond)
	for b.deps.Uploads.UploadedBytes(c.Workspace) != 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n := b.deps.Uploads.UploadedBytes(c.Workspace); n != 0 {
		t.Errorf("%d bytes count after the time of the build", n)
	}
	b.mu.Lock() // the sweep that removed the files has ended
	defer b.mu.Unlock()
	if b.byID[o.ID] != nil {
		t.Error("the build is known after its time")
	}
}

// TestUploadFiles counts more uploads than a workspace may have.
func TestUploadFiles(t *testing.T) {
	b, _ := newBuilds(t)
	for range uploadFilesMax {
		fill(t, b, "w", 0)
	}
	if err := b.deps.Uploads.reserve("w", 0); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("an upload more: %v, want quota_exceeded", err)
	}
	for i := 1; i < serverUploadFilesMax/uploadFilesMax; i++ {
		for range uploadFilesMax {
			fill(t, b, "w"+strconv.Itoa(i), 0)
		}
	}
	if err := b.deps.Uploads.reserve("other", 0); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("an upload to a full server: %v, want unavailable", err)
	}
}
