package build

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// emptyTar is a context without files.
var emptyTar = make([]byte, 1024)

// buildScratch builds a small image.
func buildScratch(ctx context.Context, b *Builder, tag string, report func(Event)) error {
	req := Request{Tag: tag, Source: []byte("FROM scratch\nWORKDIR /w\n")}
	_, err := b.Build(ctx, sandbox.Caller{Workspace: "me"}, req, bytes.NewReader(emptyTar), report)
	return err
}

// TestImagesOfTwoBuilds: how many images there may be is decided when one is recorded, and
// TestImagesOfTwoBuilds: the number of images is checked when an image is recorded; an image that
// replaces another does not add to it.
func TestImagesOfTwoBuilds(t *testing.T) {
	b := newBuilder(t, 1_000)
	b.most = 3
	none := func(Event) {}
	for i := range b.most - 1 {
		if err := buildScratch(t.Context(), b, fmt.Sprint("app:", i), none); err != nil {
			t.Fatal(err)
		}
	}
	var inner error
	once := false
	err := buildScratch(t.Context(), b, "slow", func(e Event) {
		if e.Progress.Phase == "writing" && !once {
			once = true
			inner = buildScratch(t.Context(), b, "quick", none)
		}
	})
	if inner != nil || sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("the last image that may be: %v, and one that began before it: %v", inner, err)
	}
	if err := buildScratch(t.Context(), b, "app:1", none); err != nil {
		t.Errorf("an image in the place of one: %v", err)
	}
	if err := buildScratch(t.Context(), b, "another", none); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one more: %v", err)
	}
}

// orderedHost says when a build has its place.
type orderedHost struct {
	crowdedHost
	place func()
}

func (h *orderedHost) AcquireSlot(_ context.Context, _ sandbox.Caller, r sandbox.Resources, _ time.Duration, _ func(string)) (sandbox.Resources, func(), error) {
	h.place()
	return r, func() {}, nil
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestTurnComesFirst: nothing of a context is read before the build's turn.
func TestTurnComesFirst(t *testing.T) {
	b := newBuilder(t, 100)
	var reads, before int
	b.host = &orderedHost{crowdedHost{capacity: 100}, func() { before = reads }}
	files := bytes.NewReader(emptyTar)
	upload := readerFunc(func(p []byte) (int, error) {
		reads++
		return files.Read(p)
	})
	req := Request{Source: []byte("FROM scratch\nWORKDIR /w\n")}
	if _, err := b.Build(t.Context(), sandbox.Caller{Workspace: "me"}, req, upload, func(Event) {}); err != nil {
		t.Fatal(err)
	}
	if before != 0 || reads == 0 {
		t.Errorf("of %d reads %d came before the build's turn", reads, before)
	}
}

// failingHost writes a part of a layer and fails.
type failingHost struct {
	crowdedHost
	layer []byte
	exit  int
	err   error
	// work is the directory of what commits have begun; begun is how many had when the
	// command ended.
	work  string
	begun int
}

func (h *failingHost) Run(_ context.Context, _ Command, _ func([]byte), layer io.Writer) (agentapi.Exit, error) {
	entries, err := os.ReadDir(h.work)
	if err != nil {
		return agentapi.Exit{}, err
	}
	h.begun = len(entries)
	if _, err := layer.Write(h.layer); err != nil {
		return agentapi.Exit{}, err
	}
	return agentapi.Exit{Code: h.exit}, h.err
}

// TestFailedRunLeavesNothing: a command that fails, or whose layer is cut off, leaves none,
// and nothing is begun with it before it ends.
func TestFailedRunLeavesNothing(t *testing.T) {
	for name, host := range map[string]*failingHost{
		"Exit":  {exit: 3},
		"Fails": {err: sandbox.Errorf(sandbox.Unavailable, "the box ended")},
		// A tar may end where it was cut off.
		"CutOff":  {layer: emptyTar, err: sandbox.Errorf(sandbox.Unavailable, "the box ended")},
		"LooksOK": {layer: emptyTar, err: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := newBuilderIn(t, dir, 100)
			host.capacity, host.work = 100, filepath.Join(dir, "tmp")
			b.host = host
			run := func() error {
				req := Request{Tag: "app", Source: []byte("FROM scratch\nWORKDIR /w\nRUN [\"/x\"]\n")}
				_, err := b.Build(t.Context(), sandbox.Caller{Workspace: "me"}, req, bytes.NewReader(emptyTar), func(Event) {})
				return err
			}
			if err := run(); err == nil {
				t.Error("the build went well")
			}
			if host.begun > 1 { // the context is there
				t.Errorf("%d things were begun in the store before the command ended", host.begun-1)
			}
			if _, err := b.images.Built(t.Context(), "me", "app"); sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("the image: %v", err)
			}
			if err := run(); err == nil { // it would succeed with a cached layer
				t.Error("the build went well the second time")
			}
		})
	}
}

// TestLayersOfImagesCountOnce: against the limit of images counts what an image takes from the build cache, once even if
// several images have it, and neither other entries of the cache nor what is replaced.
func TestLayersOfImagesCountOnce(t *testing.T) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for i, name := range []string{"a", "b"} {
		data := make([]byte, 1<<20)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data) // does not fail
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := newBuilder(t, 1_000)
	for i, step := range []struct {
		tag, dockerfile string
		limit           int64 // MiB; a file takes 2, with its compressed copy
		want            sandbox.Code
	}{
		{"app:v1", "COPY a /\nWORKDIR /w\n", 1, sandbox.QuotaExceeded}, // takes 2 from the cache
		{"app:v1", "COPY a /\nWORKDIR /w\n", 3, ""},
		{"", "COPY b /\n", 3, ""}, // in the cache
		{"app:v2", "COPY a /\nWORKDIR /w\n", 3, ""},
		{"app:v2", "COPY b /\n", 3, sandbox.QuotaExceeded}, // v1 keeps the file that v2 has now
		{"app:v2", "COPY b /\n", 5, ""},
		{"app:v1", "COPY b /\n", 3, ""}, // in place of the file that no other image has
	} {
		b.mostBytes = step.limit << 20
		req := Request{Tag: step.tag, Source: []byte("FROM scratch\n" + step.dockerfile)}
		_, err := b.Build(t.Context(), sandbox.Caller{Workspace: "me"}, req, bytes.NewReader(files.Bytes()), func(Event) {})
		if sandbox.CodeOf(err) != step.want {
			t.Errorf("step %d: %v, want %q", i, err, step.want)
		}
	}
}
