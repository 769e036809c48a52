package kernel

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the generated file instead of comparing it")

// The packed programs have no lines of comments alone, and no indentation where it does not matter.
var (
	comments    = regexp.MustCompile(`(?m)^ *(//|#) .*\n`)
	indentation = regexp.MustCompile(`(?m)^ +`)
)

// TestScripts compares the packed programs with the files that they come from.
func TestScripts(t *testing.T) {
	want := map[string]string{}
	paths, err := filepath.Glob("scripts/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("files: %q, %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		program := comments.ReplaceAllString(string(content), "")
		if filepath.Ext(path) != ".py" {
			program = indentation.ReplaceAllString(program, "")
		}
		want[filepath.Base(path)] = program
	}
	got, err := scripts()
	if err == nil && maps.Equal(got, want) {
		return // also if another version of Go compresses them in another way
	}
	if !*update {
		t.Fatalf("scripts.json.gz has other files than scripts (error %v); run go generate ./internal/kernel", err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	to := json.NewEncoder(w)
	to.SetEscapeHTML(false)
	if err := to.Encode(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("scripts.json.gz", packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
