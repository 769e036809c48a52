package drivertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// snapshotter returns the driver as a Snapshotter, or skips the test.
func (h *host) snapshotter(t *testing.T) driver.Snapshotter {
	t.Helper()
	announced := h.Driver.Capabilities().Snapshot
	s, ok := h.Driver.(driver.Snapshotter)
	if announced && !ok {
		t.Fatal("Capabilities() announces Snapshot, the driver is no Snapshotter")
	} else if !announced {
		t.Skip("snapshots are not supported here")
	}
	return s
}

// failingWriter fails.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func testWriteLayer(t *testing.T, h *host) {
	s := h.snapshotter(t)
	wantCode(t, "WriteLayer() of an unknown box", s.WriteLayer(within(t), sandbox.NewID(), io.Discard), sandbox.NotFound)
	wantCode(t, "WriteLayer() of a box that is not started", s.WriteLayer(within(t), h.create(t).id, io.Discard), sandbox.Conflict)
	b, port, before := h.withState(t)
	for range 2 {
		var out bytes.Buffer
		if err := s.WriteLayer(within(t), b.id, &out); err != nil {
			t.Fatalf("WriteLayer() = %v", err)
		}
		if got := findInLayer(t, &out, strings.TrimPrefix(guestDir, "/")+"/kept"); got != "kept" {
			t.Errorf("in the layer the file holds %q", got)
		}
		before = b.wantOn(t, port, before)
	}
	broken := errors.New("no space")
	if err := s.WriteLayer(within(t), b.id, failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("WriteLayer() = %v, want the writer's error", err)
	}
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WriteLayer(dead, b.id, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteLayer() = %v, want the context's error", err)
	}
	before = b.wantOn(t, port, before)
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("WriteLayer() harmed the agent: %v", err)
	}
	b.wantOn(t, port, before)
}

func testWriteNames(t *testing.T, h *host) {
	s := h.snapshotter(t)
	wantCode(t, "WriteNames() of an unknown box", s.WriteNames(within(t), sandbox.NewID(), io.Discard), sandbox.NotFound)
	wantCode(t, "WriteNames() of a box that is not started", s.WriteNames(within(t), h.create(t).id, io.Discard), sandbox.Conflict)
	b, port, before := h.withState(t)
	var out bytes.Buffer
	if err := s.WriteNames(within(t), b.id, &out); err != nil {
		t.Fatalf("WriteNames() = %v", err)
	}
	found := false
	for in := tar.NewReader(&out); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the names are no tar: %v", err)
		}
		if header.Typeflag == tar.TypeReg && header.Size != 0 {
			t.Errorf("%q has %d bytes", header.Name, header.Size)
		}
		if header.Name == strings.TrimPrefix(guestDir, "/")+"/kept" {
			found = true
			if size := header.PAXRecords[driver.LayerSize]; size != "4" {
				t.Errorf("the size of the file is %q, want 4", size)
			}
		}
	}
	if !found {
		t.Error("the file is not among the names")
	}
	broken := errors.New("no more")
	if err := s.WriteNames(within(t), b.id, failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("WriteNames() = %v, want the writer's error", err)
	}
	b.wantOn(t, port, before)
}

// findInLayer returns the content of a file in a layer. All names in the layer must be valid in an
// image.
func findInLayer(t *testing.T, r io.Reader, name string) string {
	t.Helper()
	content := ""
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatalf("the layer is not a tar: %v", err)
		}
		for _, bad := range []string{"/", "./", "../", "proc/", "sys/", "dev/", "tmp/", ".modbox/"} {
			if strings.HasPrefix(h.Name, bad) {
				t.Errorf("the layer holds %q", h.Name)
			}
		}
		if h.Name == name {
			data, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			content = string(data)
		}
	}
}
