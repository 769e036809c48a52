package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// emptyFiles is a tar of n empty files in directories of a thousand, below a path that the
// files' own names do not show.
func emptyFiles(t *testing.T, n int, below string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%sd%d/f%d", below, i/1000, i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func memoryStore(t *testing.T, memory int64) *image.Store {
	t.Helper()
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMemoryOfImages: an image takes as much memory as there is for one, however many files
// its layers of some kilobytes have, and however long their paths are; and gives it back.
func TestMemoryOfImages(t *testing.T) {
	const memory = 24 << 20
	reg := registrytest.New(t)
	s := memoryStore(t, memory)
	deep := strings.Repeat(strings.Repeat("x", 200)+"/", 18)
	for name, c := range map[string]struct {
		tar  []byte
		code sandbox.Code
	}{
		"usual":  {emptyFiles(t, 10_000, ""), ""},
		"tree":   {emptyFiles(t, 100_000, ""), sandbox.TooLarge},
		"writer": {emptyFiles(t, 30_000, ""), sandbox.TooLarge},
		"deep":   {emptyFiles(t, 8_000, deep), sandbox.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			ref := reg.Push(t, name, imageOf(t, v1.Config{}, layerOf(t, c.tar)))
			_, err := s.Pull(t.Context(), ref, image.PullOptions{Puller: registry.Puller{Workspace: "me"}})
			wantCode(t, "Pull", err, c.code)
			if err != nil && !strings.Contains(err.Error(), "images.memory") {
				t.Errorf("the error %q does not name the setting", err)
			}
			if _, err := s.Commit(t.Context(), image.CommitRequest{Layer: bytes.NewReader(c.tar), Owner: "me"}); sandbox.CodeOf(err) != c.code {
				t.Errorf("Commit = %v, want %q", err, c.code)
			}
			if now, peak := s.Scratch().Memory(); now != 0 || peak > memory/3*2 || peak == 0 {
				t.Errorf("%d bytes are held afterwards, and %d were at most, want 0 and at most %d", now, peak, memory/3*2)
			}
		})
	}
}

// TestMemoryIsShared: a workspace whose archives stop with all the memory that it can get
// does not keep others from theirs.
func TestMemoryIsShared(t *testing.T) {
	s := memoryStore(t, 24<<20)
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan struct{})
	var ended []chan error
	for range 2 {
		pr, pw := io.Pipe()
		end := make(chan error, 1)
		ended = append(ended, end)
		go func() {
			files, err := s.Scratch().ReadArchive(ctx, "hostile", pr, rootfs.ArchiveLimits{Bytes: 1 << 30, Entries: 1 << 30})
			if err == nil {
				files.Close()
			}
			_ = pr.CloseWithError(err)
			end <- err
		}()
		go func() {
			data := emptyFiles(t, 20_000, "")
			_, _ = pw.Write(data[:len(data)-2048]) // the error comes from the reader
			held <- struct{}{}
			<-ctx.Done()
			_ = pw.CloseWithError(ctx.Err())
		}()
	}
	<-held
	<-held
	if now, _ := s.Scratch().Memory(); now < 10<<20 {
		t.Errorf("the hostile workspace holds %d bytes, want most of what it may have", now)
	}
	if _, err := s.Commit(t.Context(), image.CommitRequest{Layer: bytes.NewReader(emptyFiles(t, 5000, "")), Owner: "other"}); err != nil {
		t.Errorf("Commit of another workspace = %v", err)
	}
	cancel()
	for _, end := range ended {
		<-end
	}
	if now, _ := s.Scratch().Memory(); now != 0 {
		t.Errorf("%d bytes are held afterwards", now)
	}
}

// TestMemoryIsCounted: what is counted is no less than what the files take.
func TestMemoryIsCounted(t *testing.T) {
	const n = 100_000
	s := memoryStore(t, 1<<30)
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	if _, err := zw.Write(emptyFiles(t, n, "")); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	before := heapNow()
	files, err := s.Scratch().ReadArchive(t.Context(), "me", bytes.NewReader(packed.Bytes()), rootfs.ArchiveLimits{Bytes: 1 << 30, Entries: n})
	if err != nil {
		t.Fatal(err)
	}
	took := heapNow() - before
	counted, _ := s.Scratch().Memory()
	files.Close()
	if took > counted {
		t.Errorf("%d files take %d bytes of memory each, and %d are counted", n, took/n, counted/n)
	}
	t.Logf("%d bytes for a file, %d counted", took/n, counted/n)
	runtime.KeepAlive(files)
}

// heapNow returns how many bytes of memory are in use.
func heapNow() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
