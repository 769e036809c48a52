package capacity

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestDetectInAContainer checks that the memory limit of a container counts, and only if it is below the machine's memory.
func TestDetectInAContainer(t *testing.T) {
	dir := t.TempDir()
	all, err := detect(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for text, want := range map[string]int64{
		"1048576\n":                 1 << 20,
		"max\n":                     all.MemoryBytes,
		"0\n":                       all.MemoryBytes, // it would mean no limit
		"9223372036854771712\n":     all.MemoryBytes, // of version 1, without a limit
		fmt.Sprint(all.MemoryBytes): all.MemoryBytes,
	} {
		file := filepath.Join(dir, "limit")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := detect(dir, []string{missing, file}); err != nil || got.MemoryBytes != want {
			t.Errorf("with the limit %q: %+v, %v, want %d bytes", text, got, err, want)
		}
	}
}
