package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// descriptors returns the names of the descriptors in a store.
func descriptors(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "records", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// readIndex returns the content of all descriptors in a store.
func readIndex(t *testing.T, dir string) []byte {
	t.Helper()
	var all []byte
	for _, name := range descriptors(t, dir) {
		all = append(all, readFile(t, name)...)
	}
	return all
}

// editIndex changes the descriptors in a store, and reports whether edit changed one.
func editIndex(t *testing.T, dir string, edit func([]byte) []byte) bool {
	t.Helper()
	changed := false
	for _, name := range descriptors(t, dir) {
		data := readFile(t, name)
		if after := edit(bytes.Clone(data)); !bytes.Equal(data, after) {
			changed = true
			if err := os.WriteFile(name, after, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	generation := filepath.Join(dir, "records", "generation")
	if err := errors.Join(os.WriteFile(generation+".new", []byte("whole\n"), 0o600), os.Rename(generation+".new", generation)); err != nil {
		t.Fatal(err)
	}
	return changed
}

// oldIndex makes a store of a version that has all records in index.json.
func oldIndex(t *testing.T, dir string, version int) {
	t.Helper()
	type position struct {
		Position int `json:"position"`
	}
	var images []json.RawMessage
	for _, name := range descriptors(t, dir) {
		images = append(images, readFile(t, name))
	}
	at := func(raw json.RawMessage) int {
		var p position
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		return p.Position
	}
	slices.SortFunc(images, func(a, b json.RawMessage) int { return at(a) - at(b) })
	data, err := json.Marshal(map[string]any{"version": version, "images": images})
	if err == nil {
		name := filepath.Join(dir, "index.json")
		err = errors.Join(os.Remove(name), os.WriteFile(name, data, 0o600), os.RemoveAll(filepath.Join(dir, "records")))
	}
	if err != nil {
		t.Fatal(err)
	}
}
