package build

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
