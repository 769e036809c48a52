package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/erofs/go-erofs"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// recipeFS has two built-in recipes, of which test/main is the default.
func recipeFS() fstest.MapFS {
	return fstest.MapFS{
		"main/recipe.yaml": {Data: []byte(`
name: test/main
description: A test image
default: true
date: 2025-01-02
debian: {suite: trixie, packages: [bash]}
setup: setup.sh
future_dated: [/cache]
config:
  user: user
  working_dir: /workspace
  cmd: [sleep, "1"]
  env: {B: "2", A: "1"}
memory: 256Mi
readiness_port: 8080
ttl: 1h
`)},
		"main/setup.sh":       {Data: []byte("true\n")},
		"other/recipe.yaml":   {Data: []byte("name: modbox/other\ndate: 2025-01-02\ndebian: {suite: trixie}\nmemory: 64Mi\n")},
		"not-a-recipe.md":     {Data: []byte("files beside recipes are left alone")},
		"main/files/etc/motd": {Data: []byte("hello\n")},
	}
}

// fake is a bootstrapper that writes a given tar.
type fake struct {
	tar   []byte
	calls atomic.Int32
	// before, when set, is called by each Bootstrap; its error is Bootstrap's.
	before func(ctx context.Context, job recipe.Job) error
	// after, when set, is Bootstrap's result after the tar.
	after error
}

func (f *fake) Bootstrap(ctx context.Context, job recipe.Job, w io.Writer) error {
	f.calls.Add(1)
	if f.before != nil {
		if err := f.before(ctx, job); err != nil {
			return err
		}
	}
	if _, err := w.Write(f.tar); err != nil {
		return err
	}
	return f.after
}

var fileDate = time.Date(2020, 5, 6, 7, 8, 9, 0, time.UTC)

// file, dir and link make tar entries; tarball puts them together.
type entry struct {
	tar.Header
	data string
}

func file(name, data string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: fileDate}, data}
}

func dir(name string, mode int64) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, ModTime: fileDate}}
}

func link(kind byte, name, target string) entry {
	return entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777, ModTime: fileDate}}
}

func tarball(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := tw.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func open(t *testing.T, dir string, b recipe.Bootstrapper) *image.Store {
	t.Helper()
	s, err := image.Open(dir, recipeFS(), image.Options{Bootstrapper: b, Remote: remote.Options{InsecureRegistries: loopback}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func recipeOf(t *testing.T, s *image.Store, ref string) *recipe.Recipe {
	t.Helper()
	r, err := s.Recipe(ref)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func build(t *testing.T, s *image.Store, ref string) spec.Image {
	t.Helper()
	img, err := s.Build(t.Context(), recipeOf(t, s, ref), image.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// readEROFS opens an EROFS file.
func readEROFS(t *testing.T, name string) fs.FS {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	img, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// rootOf builds test/main from a tar of the entries and returns its files.
func rootOf(t *testing.T, entries ...entry) fs.FS {
	t.Helper()
	s := open(t, t.TempDir(), &fake{tar: tarball(t, entries...)})
	build(t, s, "test/main")
	_, path, err := s.Resolve(t.Context(), "test/main")
	if err != nil {
		t.Fatal(err)
	}
	return readEROFS(t, path)
}

// wantCode fails unless err has the code.
func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Fatalf("%s: code %q (%v), want %q", what, got, err, want)
	}
}

// tree lists the files below a directory with their sizes, to see that nothing changed.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) == ".lock" {
			return err
		}
		info, err := d.Info()
		names = append(names, fmt.Sprintf("%s %d", p, info.Size()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// fieldOf returns the field an error is about.
func fieldOf(err error) string {
	var e *sandbox.Error
	errors.As(err, &e)
	if e == nil {
		return ""
	}
	return e.Field
}
