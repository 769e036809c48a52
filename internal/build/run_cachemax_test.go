package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestStepBeyondTheCacheIsRefused: a build ends at the first step that the build cache does not have and has no space for.
func TestStepBeyondTheCacheIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := buildScratch(t.Context(), newBuilderIn(t, dir, 100), "app", func(Event) {}); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "records", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		var entry struct {
			Version int `json:"version"`
			index.Record
		}
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &entry)
		}
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; entry.CacheKey != "" && n < 2000; n++ {
			entry.CacheKey, entry.Position = fmt.Sprint("copy ", n), int64(100+n)
			if data, err = json.Marshal(entry); err == nil {
				err = os.WriteFile(filepath.Join(dir, "records", entry.Key()+".json"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	b := newBuilderIn(t, dir, 100)
	req := Request{Source: []byte("FROM scratch\nWORKDIR /w\nWORKDIR /x\n")}
	_, err = b.Build(t.Context(), sandbox.Caller{Workspace: "me"}, req, bytes.NewReader(emptyTar), func(Event) {})
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "line 3: the build cache of the workspace has 2000 entries") {
		t.Errorf("a step beyond the cache: %v", err)
	}
}
