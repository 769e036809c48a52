package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// crowdedHost has disk space for a number of layers.
type crowdedHost struct {
	Host
	capacity int
}

func (h *crowdedHost) CheckDisk(context.Context, sandbox.Caller) error {
	if h.capacity--; h.capacity < 0 {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the disk is used up")
	}
	return nil
}

func (h *crowdedHost) CheckDiskFor(context.Context, sandbox.Caller, sandbox.Resources, int64) error {
	return nil
}

func (h *crowdedHost) AcquireSlot(_ context.Context, _ sandbox.Caller, r sandbox.Resources, _ time.Duration, _ func(string)) (sandbox.Resources, func(), error) {
	return r, func() {}, nil
}

func (h *crowdedHost) CheckLimits(sandbox.Resources, time.Duration) error { return nil }

func newBuilder(t *testing.T, capacity int) *Builder {
	t.Helper()
	return newBuilderIn(t, t.TempDir(), capacity)
}

// newBuilderIn is newBuilder with its images in a directory.
func newBuilderIn(t *testing.T, dir string, capacity int) *Builder {
	t.Helper()
	images, err := image.Open(dir, fstest.MapFS{}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{}, &crowdedHost{capacity: capacity}, images)
}

// TestDiskUsedUp: a build fails at the first layer that the disk has no space for.
func TestDiskUsedUp(t *testing.T) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644}), w.Close()); err != nil {
		t.Fatal(err)
	}
	for capacity, want := range map[int]sandbox.Code{0: sandbox.QuotaExceeded, 2: sandbox.QuotaExceeded, 3: sandbox.QuotaExceeded, 4: ""} {
		req := Request{Source: []byte("FROM scratch\nCOPY f /a\nCOPY f /b\n")}
		_, err := newBuilder(t, capacity).Build(t.Context(), sandbox.Caller{Workspace: "me"}, req, bytes.NewReader(files.Bytes()), func(Event) {})
		if sandbox.CodeOf(err) != want {
			t.Errorf("Build with capacity for %d layers = %v, want %q", capacity, err, want)
		}
	}
}

// TestFewFilesOpen: of the stages that are done, only the last one copied from has its
// files in memory.
func TestFewFilesOpen(t *testing.T) {
	b := newBuilder(t, 100)
	files, err := b.images.OpenFiles(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(&budget{ctx: t.Context()}, []byte("FROM scratch AS a\nWORKDIR /x\nFROM scratch AS b\nWORKDIR /x\nFROM scratch\nCOPY --from=a /x /a/\nCOPY --from=b /x /b/"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{
		builder: b, caller: sandbox.Caller{Workspace: "me"}, req: &Request{}, plan: p, context: files,
		report: func(Event) {}, ends: make([]*state, len(p.stages)), used: map[string]bool{},
	}
	defer r.close()
	if _, err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.releases) != 4 {
		t.Errorf("%d images are protected, want 4: the image of each instruction that made a layer", len(r.releases))
	}
	for i, want := range []bool{false, true, false} {
		if open := r.ends[i].files != nil; open != want {
			t.Errorf("stage %d has its files open: %t, want %t", i, open, want)
		}
	}
}

// TestLayerSaysWhatWentWrong: the error names the cause, not the cancellation of the writer.
func TestLayerSaysWhatWentWrong(t *testing.T) {
	r := &run{builder: newBuilder(t, 1), caller: sandbox.Caller{Workspace: "me"}, req: &Request{}}
	st := &state{digest: "sha256:that is not there"}
	err := r.layer(t.Context(), st, "", nil, func() {}, func(ctx context.Context, w io.Writer) error {
		if _, err := w.Write([]byte{0}); err != nil { // the commit begins with the first byte
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("layer on nothing = %v, want %s", err, sandbox.NotFound)
	}
}

func TestBuildsAndPushesAreCounted(t *testing.T) {
	b := newBuilder(t, 1)
	var leave func()
	for range callerBuilds {
		var err error
		if leave, err = b.count("me"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.count("me"); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one more = %v, want %s", err, sandbox.QuotaExceeded)
	}
	if _, err := b.count("they"); err != nil {
		t.Errorf("another workspace's: %v", err)
	}
	leave()
	if _, err := b.count("me"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
