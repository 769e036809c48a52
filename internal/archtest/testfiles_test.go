package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// namedTests are packages whose test files have the names of the source files that they test, alone or
// with a topic: end_test.go, or record_quota_test.go for record.go. Files named harness have the
// fixtures. A package can only be added.
var namedTests = []string{"internal/creation", "internal/diskuse", "internal/lifecycle", "internal/teardown"}

func TestTestFilesAreNamedAfterSources(t *testing.T) {
	for _, p := range namedTests {
		entries, err := os.ReadDir(filepath.Join("..", "..", filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"export": true, "harness": true}
		for _, e := range entries {
			if source, ok := strings.CutSuffix(e.Name(), ".go"); ok && !strings.HasSuffix(source, "_test") {
				known[source] = true
			}
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), "_test.go")
			source, _, _ := strings.Cut(name, "_")
			if ok && !known[source] {
				t.Errorf("%s/%s is named after no source file of the package: there is no %s.go", p, e.Name(), source)
			}
		}
	}
}
