package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadBuildFile(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, wrong string }{
		{"modbox-snapshot.yaml", "version: 1\nruntime: base\nfiles: ['**']", ""},
		{"agentuity-snapshot.json", `{"version": 1, "runtime": "base", "env": {"A": "b"}, "unknown": 1}`, ""},
		{"modbox-snapshot.yml", "version: 1\nruntime: base\nenv: {A: b}\nunknown: 1", "unknown"},
		{"a.yaml", "version: 2\nruntime: base\nenv: {A: b}", "version"},
		{"g.yaml", "version: 1\nruntime: base\ndependencies: [a]", "dependencies"},
		{"b.yaml", "version: 1\nenv: {A: b}", "runtime"},
		{"c.yaml", "version: 1\nruntime: base", "at least one"},
		{"d.yaml", "version: 1\nruntime: base\nenv: {A: b}\ndir: ../x", "dir"},
		{"e.yaml", "version: 1\nruntime: base\nfiles: ['[']", "pattern"},
		{"f.yaml", "", "version"},
	} {
		name := filepath.Join(dir, c.name)
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readBuildFile(name)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want an error about %q", c.name, err, c.wrong)
		}
	}
	for name, text := range map[string]string{
		"modbox-snapshot.yaml": "apt_packages: [a]\nnpm_packages: [n]", "agentuity-snapshot.yaml": "dependencies: [a]\npackages: [n]",
	} {
		name := filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte("version: 1\nruntime: base\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := &buildFile{Version: 1, Runtime: "base", AptPackages: []string{"a"}, NpmPackages: []string{"n"}}
		got, err := readBuildFile(name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if name, err := findBuildFile(dir); err != nil || filepath.Base(name) != "modbox-snapshot.yaml" {
		t.Errorf("found %s, %v", name, err)
	}
}

func TestExpand(t *testing.T) {
	got, err := expand("env", map[string]string{"A": "x${B}y${B}", "C": "$B ${"}, map[string]string{"B": "1"})
	if d := cmp.Diff(map[string]string{"A": "x1y1", "C": "$B ${"}, got); d != "" || err != nil {
		t.Errorf("expanded, %v (-want +got):\n%s", err, d)
	}
	if _, err := expand("env", map[string]string{"A": "${B}${C}"}, nil); err == nil || !strings.Contains(err.Error(), "B, C") {
		t.Errorf("without values: %v", err)
	}
}

func TestBuildFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a.txt", "src/b.go", "src/deep/c.go", "src/skip/d.go", "src/b_test.go", ".git/config", "src/node_modules/m.js", ".env", "src/.env.local", ".agentuity/x", "other/e.go",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("b.go", filepath.Join(dir, "src/link.go")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for patterns, want := range map[string]string{
		"**":                                  "a.txt other/e.go src/b.go src/b_test.go src/deep/c.go src/link.go src/skip/d.go",
		"src":                                 "src/b.go src/b_test.go src/deep/c.go src/link.go src/skip/d.go",
		"src/**/*.go !src/skip !**/*_test.go": "src/b.go src/deep/c.go src/link.go",
		"./*.txt .env .git":                   "a.txt",
	} {
		b := buildFile{Files: strings.Fields(patterns)}
		files, err := b.collect(root)
		var got []string
		for _, f := range files {
			got = append(got, f.path)
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: %v, %v, want %s", patterns, got, err, want)
		}
	}
	if _, err := (&buildFile{Files: []string{"nothing"}}).collect(root); err == nil {
		t.Error("a pattern that matches nothing is no error")
	}

	b := buildFile{Runtime: "base", Files: []string{"src/*.go"}, Env: map[string]string{"A": "b"}, AptPackages: []string{"x", "y"}}
	files, err := b.collect(root)
	if err != nil {
		t.Fatal(err)
	}
	hash := b.contentHash(files)
	same := b
	same.AptPackages = []string{"y", "x"}
	if same.contentHash(files) != hash {
		t.Error("the order of apt_packages changes the hash")
	}
	for name, change := range map[string]func(*buildFile){
		"env": func(b *buildFile) { b.Env = map[string]string{"A": "c"} }, "public": func(b *buildFile) { b.Public = true },
		"runtime": func(b *buildFile) { b.Runtime = "x" }, "packages": func(b *buildFile) { b.NpmPackages = []string{"x"} }, "pip": func(b *buildFile) { b.PipPackages = []string{"x"} },
	} {
		other := b
		if change(&other); other.contentHash(files) == hash {
			t.Errorf("another %s has the same hash", name)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "src/b.go"), 0o755); err != nil {
		t.Fatal(err)
	}
	if files, err = b.collect(root); err != nil || b.contentHash(files) == hash {
		t.Errorf("another mode has the same hash, %v", err)
	}
	wantArchive(t, root, files)
}

// wantArchive checks that files are packed under their names.
func wantArchive(t *testing.T, root *os.Root, files []builtFile) {
	t.Helper()
	var packed bytes.Buffer
	if err := packBuild(&packed, root, files); err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	tr, names := tar.NewReader(zr), ""
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names += h.Name + " "
	}
	if names != "src/b.go src/b_test.go src/link.go " {
		t.Errorf("the archive holds %s", names)
	}
}
